//! TLS by rustls on ring, which the PostgreSQL driver links too.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};

/// The certificates that every HTTP client of the product trusts: the system's. Read once.
pub fn tls_config() -> Result<ClientConfig, String> {
    static TLS: OnceLock<Result<ClientConfig, String>> = OnceLock::new();
    TLS.get_or_init(|| make().map_err(|error| error.to_string())).clone()
}

fn make() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    // The system's certificates, so that a company's own gateway is trusted too.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        // A minimal container has none: use the public ones.
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(ring).with_safe_default_protocol_versions()?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}
