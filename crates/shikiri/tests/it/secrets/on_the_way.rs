//! Keys on their way to a server: only where they belong, and never in the open.

use std::net::SocketAddr;
use std::time::Duration;

use shikiri_testkit::TestApp;
use shikiri_testpg::{Cluster, Installed};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::PROGRAM;

const CA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/secrets/tls/ca.pem");

/// Listens for `shikiri run --server` and gives all that came, without an answer.
async fn overheard(listener: TcpListener) -> String {
    let mut heard = Vec::new();
    let hearing = async {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut part = [0; 8_192];
            let count = stream.read(&mut part).await.unwrap_or(0);
            heard.extend_from_slice(&part[..count]);
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(20), hearing).await;
    String::from_utf8_lossy(&heard).into_owned()
}

/// A port of this machine under an address that is not a loopback one.
async fn not_loopback() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, SocketAddr::from(([0, 0, 0, 0], port)))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_key_is_sent_to_no_other_machine() {
    let app = TestApp::new(PROGRAM).start().await;
    let (listener, address) = not_loopback().await;
    let hearing = tokio::spawn(overheard(listener));
    let cli = app.cli();
    let server = format!("http://{address}");
    let ended = tokio::task::spawn_blocking(move || {
        (
            cli.run(&["run", "hi", "--server", &server]),
            cli.env("SHIKIRI_KEY", "shk_of_theirs").run(&["run", "hi", "--server", &server]),
        )
    });
    let (without, with) = ended.await.unwrap();
    let heard = hearing.await.unwrap();
    assert!(!heard.contains(&app.admin_key()), "{heard}");
    assert!(!heard.contains("shk_of_theirs"), "a key went out in the open: {heard}");
    without.refused(3, &["SHIKIRI_KEY"]);
    with.refused(3, &["https://"]);
}

/// Plays a server that says that it has no TLS, and gives what a client says after that.
async fn said_in_the_open(listener: TcpListener) -> Vec<u8> {
    use tokio::io::AsyncWriteExt as _;
    let mut said = Vec::new();
    let hearing = async {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut part = [0; 1_024];
            let mut count = stream.read(&mut part).await.unwrap_or(0);
            // The question whether there is TLS.
            if part[..count] == [0, 0, 0, 8, 4, 210, 22, 47] {
                let _ = stream.write_all(b"N").await;
                count = stream.read(&mut part).await.unwrap_or(0);
            }
            said.extend_from_slice(&part[..count]);
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(8), hearing).await;
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_elsewhere_gets_nothing_before_it_has_proved_who_it_is() {
    for (parameters, is_in_the_open) in [("", false), ("?sslmode=disable", true)] {
        let folder = tempfile::TempDir::new().unwrap();
        let (listener, address) = not_loopback().await;
        let hearing = tokio::spawn(said_in_the_open(listener));
        let url = format!("postgres://reader:pw@{address}/data{parameters}");
        let cli = shikiri_testkit::Cli::new(PROGRAM, folder.path()).store(&url);
        let ended = tokio::task::spawn_blocking(move || cli.run(&["db", "check"])).await.unwrap();
        let said = String::from_utf8_lossy(&hearing.await.unwrap()).into_owned();
        assert_eq!(said.contains("reader"), is_in_the_open, "{parameters}: {said:?}");
        if !is_in_the_open {
            ended.refused(5, &["TLS", "sslrootcert", "sslmode=disable"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_is_used_over_tls_if_its_certificate_is_trusted() {
    let Some(installed) = Installed::find_or_skip("PostgreSQL over TLS") else { return };
    let checking = tokio::task::spawn_blocking(move || {
        let cluster = Cluster::start(&installed).expect("a cluster");
        let (certificate, key) = (include_str!("tls/server.pem"), include_str!("tls/server.key"));
        cluster.require_tls(certificate, key).expect("a cluster with TLS");
        let folder = tempfile::TempDir::new().unwrap();
        let check = |host: &str, parameters: &str| {
            let url = cluster.url().replace("127.0.0.1", host);
            let cli = shikiri_testkit::Cli::new(PROGRAM, folder.path());
            let cli = cli.store(&format!("{url}{parameters}"));
            cli.run(&["tenants", "create", "guest", "--json"])
        };
        let trusted = format!("?sslmode=verify-full&sslrootcert={CA}");
        check("localhost", "?sslmode=disable").refused(5, &["pg_hba.conf"]);
        check("localhost", "?sslmode=verify-full").refused(5, &["TLS", "sslrootcert"]);
        check("127.0.0.1", &trusted).refused(5, &["TLS", "127.0.0.1"]);
        check("localhost", &trusted).done();
    });
    checking.await.unwrap();
}

/// In front of a server: takes TLS off what comes to it. Gives its port.
async fn terminate_tls(behind: u16) -> u16 {
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring::default_provider;
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(std::sync::Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut outside) = acceptor.accept(stream).await else { return };
                let inside = tokio::net::TcpStream::connect(("127.0.0.1", behind)).await;
                let mut inside = inside.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_behind_tls_carries_a_run_if_its_certificate_is_trusted() {
    let app = TestApp::new(PROGRAM).start().await;
    let port = terminate_tls(app.port()).await;
    let server = format!("https://localhost:{port}");
    let cli = app.cli();
    let ended = tokio::task::spawn_blocking(move || {
        let run = ["run", "hi", "--server", &server];
        (cli.run(&run), cli.env("SSL_CERT_FILE", CA).run(&run))
    });
    let (untrusted, trusted) = ended.await.unwrap();
    untrusted.refused(5, &["certificate"]);
    assert!(trusted.done().stdout.contains("offline engine"));
}
