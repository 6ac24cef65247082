use tokio::net::TcpListener;

use super::*;

/// The messages in a text, as a client takes them when it comes `step` bytes at a time: subject, reply, headers, payload.
fn taken(text: &[u8], step: usize) -> Result<Vec<[String; 4]>, ()> {
    let (mut messages, mut at) = (Vec::new(), 0);
    for end in (0..=text.len()).step_by(step).chain([text.len()]) {
        loop {
            match first(&text[..end], at) {
                Line::Message(frame) => {
                    let of = |range: Range<usize>| String::from_utf8_lossy(&text[range]).into_owned();
                    at = frame.end;
                    messages.push([of(frame.subject), of(frame.reply), of(frame.headers), of(frame.payload)]);
                }
                Line::Other(_, end) => at = end,
                Line::Partial => break,
                Line::Garbage => return Err(()),
            }
        }
    }
    assert_eq!(at, text.len(), "something is left");
    Ok(messages)
}

#[test]
fn messages_are_whole_however_they_arrive() {
    let text: &[u8] = b"PING\r\nMSG _F.a.7 1 2\r\nok\r\n+OK\r\nMSG a.b 12 $JS.ACK.x.3 5\r\na\r\nbc\r\n\
        HMSG _F.a.0 1 25 29\r\nNATS/1.0 503 Gone\r\nA: b\r\n\r\nhi\r\nMSG c 1 0\r\n\r\n";
    let of = |parts: [&str; 4]| parts.map(str::to_owned);
    let expected = [
        of(["_F.a.7", "", "", "ok"]),
        of(["a.b", "$JS.ACK.x.3", "", "a\r\nbc"]),
        of(["_F.a.0", "", "NATS/1.0 503 Gone\r\nA: b\r\n", "\r\nhi"]),
        of(["c", "", "", ""]),
    ];
    for step in [1, 2, 7, 64, 1000] {
        assert_eq!(taken(text, step).unwrap(), expected, "{step} bytes at a time");
    }
}

#[test]
fn what_is_not_the_protocol_is_told() {
    for text in
        ["MSG a 1\r\n", "MSG a 1 x\r\n\r\n", "HMSG a 1 9 5\r\nhello\r\n", "MSG a b c d e f g 1\r\n", "HMSG a 1 5\r\n"]
    {
        assert_eq!(taken(text.as_bytes(), 1000), Err(()), "{text}");
    }
}

#[test]
fn an_answer_says_which_request_and_whether_anybody_was_there() {
    let message = |subject: &'static str, headers: &'static str| Message {
        subject: subject.as_bytes(),
        reply: b"",
        headers: headers.as_bytes(),
        payload: b"",
    };
    let numbers =
        ["_F.ab.17", "_F.ab.", "_F.ab.4294967296", "_F.x9", "$KV.b.c.17"].map(|subject| message(subject, "").answers());
    assert_eq!(numbers, [Some(17), None, None, None, None]);
    let statuses = ["NATS/1.0 503\r\n\r\n", "NATS/1.0\r\nA: b\r\n\r\n", "NATS/1.0 5", ""]
        .map(|block| message("a", block).status());
    assert_eq!(statuses, [Some(503), None, None, None]);
    assert_eq!(last_number(b"$JS.ACK.s.c.1.22.3.1700.0"), Some(0));
}

/// Somebody who says this, in answer to whatever line comes to them first.
async fn broker(says: &'static str) -> (String, engine::tasks::Task<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heard = engine::tasks::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"INFO {\"server_name\":\"n2\"}\r\n").await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"PING\r\n") {
            stream.read_buf(&mut heard).await.unwrap();
        }
        stream.write_all(says.as_bytes()).await.unwrap();
        // Until the client goes.
        while stream.read_buf(&mut heard).await.unwrap() > 0 {}
        String::from_utf8(heard).unwrap()
    });
    (address, heard)
}

#[tokio::test]
async fn a_client_says_who_it_is_and_what_it_asks() {
    let env = Env::seeded(1);
    let (address, heard) = broker("PONG\r\n").await;
    let user = User { name: "me".into(), password: Secret::new("it's \"me\"") };
    let mut lean = Lean::connect(&env, &address, Some(&user)).await.unwrap();
    assert_eq!(lean.server(), "n2");
    let inbox = format!("{}3", lean.inbox);
    lean.ask(3, "a.b", b"body");
    lean.ask_with(None, "c", format_args!("A: {}\r\n", 7), b"xy");
    lean.flush().await.unwrap();
    drop(lean);
    let heard = heard.join().await;
    let (greeting, rest) = heard.split_once("PING\r\n").unwrap();
    assert!(greeting.contains(r#""pass":"it's \"me\"""#) && greeting.contains(r#""user":"me""#), "{greeting}");
    assert!(greeting.contains(&format!("SUB {}* 1\r\n", inbox.trim_end_matches('3'))), "{greeting}");
    assert_eq!(rest, format!("PUB a.b {inbox} 4\r\nbody\r\nHPUB c 18 20\r\nNATS/1.0\r\nA: 7\r\n\r\nxy\r\n"));
}

#[tokio::test]
async fn who_is_not_let_in_hears_the_brokers_words() {
    let env = Env::seeded(1);
    let (address, _heard) = broker("-ERR 'Authorization Violation'\r\n").await;
    let error = Lean::connect(&env, &address, None).await.err().unwrap().to_string();
    assert!(error.contains(&address) && error.contains("'Authorization Violation'"), "{error}");
}
