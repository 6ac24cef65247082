//! Access to a NATS that somebody else runs: TLS with an authority and a certificate of one's own.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use engine::broker::{Access, ClientCertificate, Cluster, Lookup, Settings, Tls, resolve};
use engine::env::Env;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// A server that is killed when the test is over, whichever way.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it is ours to kill");
    }
}

/// Writes a certificate that the authority vouches for, and its key.
fn certificate(dir: &Path, name: &str, issuer: &CertifiedIssuer<'_, KeyPair>) -> ClientCertificate {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    let at = ClientCertificate { certificate: dir.join(format!("{name}.pem")), key: dir.join(format!("{name}.key")) };
    fs::write(&at.certificate, certificate.pem()).expect("written");
    fs::write(&at.key, key.serialize_pem()).expect("written");
    at
}

/// Starts a server that wants a certificate from its clients; the answer is its port too.
async fn serve(dir: &Path, env: &Env) -> (Server, u16) {
    let binary = resolve(&Lookup::system(), env).await.expect("a nats-server").path;
    let config = "listen: \"127.0.0.1:-1\"\nports_file_dir: \".\"\n\
                  authorization { user: ann, password: \"p@ss\" }\n\
                  tls { cert_file: server.pem, key_file: server.key, ca_file: ca.pem, verify: true }\n";
    fs::write(dir.join("nats.conf"), config).expect("written");
    let mut command = Command::new(binary);
    command.args(["-c", "nats.conf"]).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Server(command.spawn().expect("the server starts"));
    let ports = dir.join(format!("nats-server_{}.ports", server.0.id()));
    let deadline = env.now() + Duration::from_secs(20);
    loop {
        // The file appears before it is written to the end.
        let port = fs::read(&ports).ok().and_then(|text| {
            let ports: serde_json::Value = serde_json::from_slice(&text).ok()?;
            ports["nats"][0].as_str()?.rsplit_once(':')?.1.parse().ok()
        });
        if let Some(port) = port {
            return (server, port);
        }
        assert!(env.now() < deadline, "the server does not say where it listens");
        env.sleep(Duration::from_millis(5)).await;
    }
}

/// Connects as often as it takes. A server ends a connection whose client is slow to say who it is.
async fn connected(url: &str, ca: Option<PathBuf>, client: Option<ClientCertificate>) {
    let env = Env::system();
    let deadline = env.now() + Duration::from_secs(60);
    while let Err(error) = connect(url, ca.clone(), client.clone()).await {
        assert!(env.now() < deadline, "{error}");
    }
}

async fn connect(url: &str, ca: Option<PathBuf>, client: Option<ClientCertificate>) -> Result<(), String> {
    let access = Access::external(url, None, Tls { ca, client }).map_err(|error| error.to_string())?;
    let options = access.connect_options().await.map_err(|error| error.to_string())?;
    options.connect(access.urls()).await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn tls_takes_the_authority_and_shows_the_certificate() {
    let env = Env::system();
    let dir = tempfile::tempdir().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let ca = dir.path().join("ca.pem");
    fs::write(&ca, authority.pem()).unwrap();
    certificate(dir.path(), "server", &authority);
    let own = certificate(dir.path(), "client", &authority);
    let (_server, port) = serve(dir.path(), &env).await;

    let url = format!("tls://ann:p%40ss@127.0.0.1:{port}");
    connected(&url, Some(ca.clone()), Some(own.clone())).await;
    connect(&url, Some(ca.clone()), None).await.expect_err("the server wants a certificate");
    connect(&url, None, Some(own.clone())).await.expect_err("no authority of the system's vouches for the server");
    let wrong = format!("tls://ann:pass@127.0.0.1:{port}");
    connect(&wrong, Some(ca), Some(own)).await.expect_err("the password counts all the same");
}

#[tokio::test]
async fn an_authority_is_not_passed_over_because_the_server_speaks_no_tls() {
    let dir = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let ca = dir.path().join("ca.pem");
    fs::write(&ca, CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem()).unwrap();
    // Longer than the default: several suites may share two cores.
    let settings = Settings { ready_within: Duration::from_secs(60), ..Settings::new(1) };
    let plain = Cluster::start(settings, Env::system()).await.unwrap();
    let url = plain.access().exposed();
    connected(&url, None, None).await;
    connect(&url, Some(ca), None).await.expect_err("nobody has vouched for this server");
    plain.stop().await.unwrap();
}
