//! What a client needs to reach a NATS: addresses, who it is, and whom it trusts.
//!
//! An embedded cluster hands one out; [`Access::external`] makes one for a NATS that somebody else runs. Passwords are kept
//! apart from the addresses (the client library would ignore them there) and show in no log line.

use std::path::{Path, PathBuf};

use async_nats::{ConnectOptions, ServerAddr};
use coordproto::answer::BadArgument;
use percent_encoding::percent_decode_str;

use super::secret::Secret;

/// Who the client says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Nobody in particular.
    Open,
    /// A user with a password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A credentials file (`.creds`): a JWT and the seed that signs for it.
    Credentials(PathBuf),
}

/// Whom the client trusts, and how it proves itself, on `tls://` connections and wherever the server asks for TLS. With
/// either of the two named, a server that offers no TLS is refused, whatever its URL begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file of authorities to trust in place of the system's.
    pub ca: Option<PathBuf>,
    /// PEM files of the client's own certificate and its key.
    pub client: Option<ClientCertificate>,
}

/// A certificate that the client shows the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The PEM file of the certificate chain.
    pub certificate: PathBuf,
    /// The PEM file of its key.
    pub key: PathBuf,
}

/// A file that the access names cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("NATS {what} {}: {source}", path.display())]
pub struct AccessError {
    /// Which file.
    what: &'static str,
    path: PathBuf,
    source: std::io::Error,
}

/// How to reach a NATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    urls: Vec<String>,
    auth: Auth,
    tls: Tls,
}

impl Access {
    /// An embedded cluster's: plain connections on loopback, a user and its password.
    pub(super) fn embedded(urls: Vec<String>, user: &str, password: &Secret) -> Access {
        let auth = Auth::Password { user: user.to_owned(), password: password.clone() };
        Access { urls, auth, tls: Tls::default() }
    }

    /// Access to a NATS that runs elsewhere. `urls` is one or more `nats://[user:password@]host[:port]` or `tls://…`,
    /// separated by commas; the port is 4222 unless it is given, and user and password are percent-decoded.
    ///
    /// # Errors
    /// Names the URL, without its password, and the rule that it breaks.
    pub fn external(urls: &str, credentials: Option<PathBuf>, tls: Tls) -> Result<Access, BadArgument> {
        let mut plain = Vec::new();
        let mut auth = credentials.map(Auth::Credentials);
        for given in urls.split(',').map(str::trim) {
            let (url, user) = parse(given)?;
            plain.push(url);
            match (&auth, user) {
                (_, None) => {}
                (None, Some(user)) => auth = Some(user),
                (Some(Auth::Credentials(_)), Some(_)) => {
                    return Err(bad(given, "no user in the URL beside a credentials file"));
                }
                (Some(known), Some(user)) if *known == user => {}
                (Some(_), Some(_)) => return Err(bad(given, "the same user and password in every URL that has one")),
            }
        }
        Ok(Access { urls: plain, auth: auth.unwrap_or(Auth::Open), tls })
    }

    /// The addresses, without user and password: what `ConnectOptions::connect` takes.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Who the client says it is.
    pub fn auth(&self) -> &Auth {
        &self.auth
    }

    /// The addresses with user and password in them, joined by commas, as [`Access::external`] reads them. For the one who
    /// asked for it; not for a log.
    pub fn exposed(&self) -> String {
        let one = |url: &String| match &self.auth {
            Auth::Password { user, password } => {
                let escaped = |text| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC);
                let (user, password) = (escaped(user), escaped(password.expose()));
                url.replacen("://", &format!("://{user}:{password}@"), 1)
            }
            Auth::Open | Auth::Credentials(_) => url.clone(),
        };
        self.urls.iter().map(one).collect::<Vec<_>>().join(",")
    }

    /// The authentication and the TLS of a connection; everything else is left at the library's defaults.
    ///
    /// # Errors
    /// When a file that the access names cannot be read.
    pub async fn connect_options(&self) -> Result<ConnectOptions, AccessError> {
        let mut options = ConnectOptions::new();
        match &self.auth {
            Auth::Open => {}
            Auth::Password { user, password } => {
                options = options.user_and_password(user.clone(), password.expose().to_owned());
            }
            Auth::Credentials(path) => {
                options = options.credentials_file(path).await.map_err(failed("credentials file", path))?;
            }
        }
        // The library opens these only while it connects, and its error does not say which file it was.
        if let Some(ca) = &self.tls.ca {
            readable("authority file", ca).await?;
            options = options.add_root_certificates(ca.clone());
        }
        if let Some(ClientCertificate { certificate, key }) = &self.tls.client {
            readable("client certificate", certificate).await?;
            readable("client key", key).await?;
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        // Whoever names an authority wants the server checked: a server that offers no TLS must not pass for one.
        Ok(if self.tls == Tls::default() { options } else { options.require_tls(true) })
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> AccessError {
    let path = path.to_owned();
    move |source| AccessError { what, path, source }
}

async fn readable(what: &'static str, path: &Path) -> Result<(), AccessError> {
    let opened = path.to_owned();
    crate::tasks::blocking(move || std::fs::File::open(opened).map(drop)).await.map_err(failed(what, path))
}

/// The address without user and password, and those two.
fn parse(given: &str) -> Result<(String, Option<Auth>), BadArgument> {
    if given.is_empty() {
        return Err(bad(given, "one or more URLs, separated by commas, none of them empty"));
    }
    if !given.starts_with("nats://") && !given.starts_with("tls://") {
        return Err(bad(given, "a NATS URL starts with nats:// or tls://"));
    }
    let address = given.parse::<ServerAddr>().map_err(|error| bad(given, &error.to_string()))?;
    let mut url = address.into_inner();
    if url.host_str().is_none_or(str::is_empty) {
        return Err(bad(given, "a NATS URL names a host"));
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(bad(given, "a NATS URL ends after the port"));
    }
    let decoded = |text: &str| {
        percent_decode_str(text)
            .decode_utf8()
            .map(|text| text.into_owned())
            .map_err(|_| bad(given, "user and password are UTF-8 once percent-decoded"))
    };
    let auth = match (url.username(), url.password()) {
        ("", None) => None,
        ("", Some(_)) | (_, None) => {
            return Err(bad(given, "a user comes with a password, and a password with a user"));
        }
        (user, Some(password)) => {
            Some(Auth::Password { user: decoded(user)?, password: Secret::new(decoded(password)?) })
        }
    };
    let cleared = url.set_username("").and_then(|()| url.set_password(None));
    cleared.map_err(|()| bad(given, "a NATS URL names a host"))?;
    Ok((url.as_str().trim_end_matches('/').to_owned(), auth))
}

/// The error for one URL, shown without what stands before its host.
fn bad(given: &str, rule: &str) -> BadArgument {
    let shown = match (given.find("://"), given.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}***{}", &given[..scheme + 3], &given[at..]),
        (None, Some(at)) => format!("***{}", &given[at..]),
        _ => given.to_owned(),
    };
    BadArgument::new("NATS URL", shown, rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn external(urls: &str) -> Result<Access, BadArgument> {
        Access::external(urls, None, Tls::default())
    }

    #[test]
    fn user_and_password_leave_the_urls() {
        let access = external("nats://ann:p%40ss@a:4222, tls://b.example").unwrap();
        assert_eq!(access.urls(), ["nats://a:4222", "tls://b.example"]);
        assert_eq!(access.auth(), &Auth::Password { user: "ann".into(), password: Secret::new("p@ss") });
        assert_eq!(access.exposed(), "nats://ann:p%40ss@a:4222,tls://ann:p%40ss@b.example");
        assert_eq!(external(&access.exposed()).unwrap(), access);
        assert!(!format!("{access:?}").contains("p@ss"));
    }

    #[test]
    fn a_broken_url_is_named_with_its_rule_and_without_its_password() {
        let cases = [
            ("", "none of them empty"),
            ("nats://a,", "none of them empty"),
            ("a:4222", "starts with nats://"),
            ("http://a", "starts with nats://"),
            ("ann:hush@a", "starts with nats://"),
            ("nats://", "names a host"),
            ("nats://ann:hush@", "host"),
            ("nats://a:70000", "port"),
            ("nats://ann:hush@a/x", "ends after the port"),
            ("nats://ann@a", "comes with a password"),
            ("nats://:hush@a", "comes with a password"),
            ("nats://ann:hush@a,nats://bob:hush@b", "the same user"),
        ];
        for (given, rule) in cases {
            let error = external(given).unwrap_err().to_string();
            assert!(error.contains(rule), "{given}: {error}");
            assert!(!error.contains("hush"), "{given}: {error}");
        }
    }

    #[test]
    fn a_credentials_file_stands_alone() {
        let creds = || Some(PathBuf::from("/x.creds"));
        assert!(Access::external("nats://ann:hush@a", creds(), Tls::default()).is_err());
        let access = Access::external("nats://a", creds(), Tls::default()).unwrap();
        assert_eq!(access.auth(), &Auth::Credentials("/x.creds".into()));
    }

    #[tokio::test]
    async fn a_missing_file_is_named() {
        let tls = Tls { ca: Some("/nowhere/ca.pem".into()), client: None };
        let access = Access::external("tls://a", None, tls).unwrap();
        let error = access.connect_options().await.map(drop).unwrap_err().to_string();
        assert!(error.starts_with("NATS authority file /nowhere/ca.pem: "), "{error}");
        let access = Access::external("nats://a", Some("/nowhere/x.creds".into()), Tls::default()).unwrap();
        let error = access.connect_options().await.map(drop).unwrap_err().to_string();
        assert!(error.starts_with("NATS credentials file /nowhere/x.creds: "), "{error}");
    }
}
