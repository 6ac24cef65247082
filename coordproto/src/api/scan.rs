//! A small reader of JSON as the API writes it: it finds fields and decides nothing.
//!
//! Acknowledgements and leader reads are the hot replies; a tree of values would cost more than the request. The reader walks
//! the bytes once, hands out slices and numbers, skips what it is not asked for, and refuses what it cannot read. It does not
//! check the text of skipped strings; a reply is either what was asked for or [`Garbage`].

use std::borrow::Cow;

use super::Garbage;

/// Objects and arrays may nest this deep; the API's replies stay below ten.
const DEEPEST: u32 = 64;

/// A position in a reply.
#[derive(Clone)]
pub(super) struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

/// A string as it stands in the reply, without its quotes.
#[derive(Clone, Copy)]
pub(super) struct Raw<'a> {
    pub(super) text: &'a [u8],
    /// Where the text starts in the reply.
    pub(super) start: usize,
    /// Whether escapes have to be undone before the text means anything.
    pub(super) escaped: bool,
}

impl<'a> Raw<'a> {
    /// Whether the string means exactly `wanted`.
    pub(super) fn is(&self, wanted: &str) -> bool {
        if self.escaped { self.unescape().is_ok_and(|text| text == wanted) } else { self.text == wanted.as_bytes() }
    }

    /// The string with its escapes undone.
    pub(super) fn unescape(&self) -> Result<Cow<'a, str>, Garbage> {
        const UNREADABLE: Garbage = Garbage("a string that cannot be read");
        if !self.escaped {
            return std::str::from_utf8(self.text).map(Cow::Borrowed).map_err(|_| UNREADABLE);
        }
        let mut quoted = Vec::with_capacity(self.text.len() + 2);
        quoted.push(b'"');
        quoted.extend_from_slice(self.text);
        quoted.push(b'"');
        serde_json::from_slice(&quoted).map(Cow::Owned).map_err(|_| UNREADABLE)
    }
}

impl<'a> Scan<'a> {
    /// Starts at the reply's object.
    pub(super) fn object(text: &'a [u8]) -> Result<Scan<'a>, Garbage> {
        let mut scan = Scan { text, at: 0 };
        scan.open()?;
        Ok(scan)
    }

    /// Steps into an object.
    pub(super) fn open(&mut self) -> Result<(), Garbage> {
        self.expect(b'{')
    }

    /// The next field's name, with the position before its value; `None` once the object has closed.
    pub(super) fn field(&mut self) -> Result<Option<&'a [u8]>, Garbage> {
        Ok(self.field_at()?.map(|raw| raw.text))
    }

    /// As [`Scan::field`], with where the name stands.
    pub(super) fn field_at(&mut self) -> Result<Option<Raw<'a>>, Garbage> {
        match self.peek()? {
            b'}' => {
                self.at += 1;
                return Ok(None);
            }
            b',' => self.at += 1,
            _ => {}
        }
        let name = self.string()?;
        self.expect(b':')?;
        Ok(Some(name))
    }

    /// A string.
    pub(super) fn string(&mut self) -> Result<Raw<'a>, Garbage> {
        self.expect(b'"')?;
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let found = memchr::memchr2(b'"', b'\\', rest).ok_or(Garbage("a string without an end"))?;
            self.at += found;
            if self.text[self.at] == b'"' {
                let text = &self.text[start..self.at];
                self.at += 1;
                return Ok(Raw { text, start, escaped });
            }
            escaped = true;
            self.at += 2;
        }
    }

    /// A whole number, not negative.
    pub(super) fn number(&mut self) -> Result<u64, Garbage> {
        self.peek()?;
        let rest = &self.text[self.at..];
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += digits;
        // A fraction or an exponent would make the digits read so far a lie.
        if digits == 0 || matches!(self.text.get(self.at), Some(b'.' | b'e' | b'E')) {
            return Err(Garbage("not a whole number"));
        }
        decimal(&rest[..digits]).ok_or(Garbage("a number beyond 64 bits"))
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self) -> Result<bool, Garbage> {
        self.peek()?;
        let rest = &self.text[self.at..];
        if rest.starts_with(b"true") {
            self.at += 4;
            Ok(true)
        } else if rest.starts_with(b"false") {
            self.at += 5;
            Ok(false)
        } else {
            Err(Garbage("neither true nor false"))
        }
    }

    /// Passes over one value, whatever it is, and answers where it stood.
    pub(super) fn skip(&mut self) -> Result<std::ops::Range<usize>, Garbage> {
        self.peek()?;
        let start = self.at;
        let mut depth = 0;
        loop {
            match self.peek()? {
                b'{' | b'[' if depth == DEEPEST => return Err(Garbage("nested too deep")),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth == 0 => return Err(Garbage("a value is missing")),
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                b'"' => {
                    self.string()?;
                }
                b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                _ => {
                    let word = self.text[self.at..]
                        .iter()
                        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-'))
                        .count();
                    if word == 0 {
                        return Err(Garbage("not JSON"));
                    }
                    self.at += word;
                }
            }
            if depth == 0 {
                return Ok(start..self.at);
            }
        }
    }

    /// Nothing but space may follow the object.
    pub(super) fn end(&mut self) -> Result<(), Garbage> {
        match self.peek() {
            Err(_) => Ok(()),
            Ok(_) => Err(Garbage("more than one value")),
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Garbage> {
        if self.peek()? != byte {
            return Err(Garbage("not the JSON it should be"));
        }
        self.at += 1;
        Ok(())
    }

    fn peek(&mut self) -> Result<u8, Garbage> {
        while let Some(&byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Ok(byte);
            }
            self.at += 1;
        }
        Err(Garbage("cut short"))
    }
}

/// The number that decimal digits spell; `None` for anything else, nothing included.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_found_in_any_order_and_the_rest_is_skipped() {
        let mut scan =
            Scan::object(br#" { "a" : [1,{"b":"}"}] , "n":18446744073709551615,"t":true,"s":"x\"y" } "#).unwrap();
        assert_eq!(scan.field().unwrap(), Some(&b"a"[..]));
        scan.skip().unwrap();
        assert_eq!(scan.field().unwrap(), Some(&b"n"[..]));
        assert_eq!(scan.number().unwrap(), u64::MAX);
        assert_eq!(scan.field().unwrap(), Some(&b"t"[..]));
        assert!(scan.boolean().unwrap());
        assert_eq!(scan.field().unwrap(), Some(&b"s"[..]));
        assert!(scan.string().unwrap().is("x\"y"));
        assert_eq!(scan.field().unwrap(), None);
        scan.end().unwrap();
    }

    #[test]
    fn what_is_not_a_whole_number_is_refused() {
        for text in ["-1", "1.5", "1e3", "18446744073709551616", "\"1\"", "null", ""] {
            assert!(Scan { text: text.as_bytes(), at: 0 }.number().is_err(), "{text}");
        }
    }

    fn walk(text: &[u8]) -> Result<(), Garbage> {
        let mut scan = Scan::object(text)?;
        while scan.field()?.is_some() {
            scan.skip()?;
        }
        scan.end()
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_and_never_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = walk(&text);
        }

        #[test]
        fn what_is_cut_short_is_refused(cut in 0usize..60) {
            let whole = br#"{"a":[1,{"b":"c\"d"}],"n":12,"t":true,"o":{"x":null},"z":""}"#;
            prop_assert!(walk(whole).is_ok());
            prop_assert!(walk(&whole[..cut.min(whole.len() - 1)]).is_err());
        }
    }
}
