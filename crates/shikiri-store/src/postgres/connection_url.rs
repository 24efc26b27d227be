//! Connects to a store URL, and turns connection errors into one line with the next step. The URL
//! contains the password, so no part of it is ever shown.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Connection};

use super::error_class::PostgresErrorClass;
use crate::error::StoreError;

/// A server that does not answer within this time counts as down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings that the store relies on, independent of the server's configuration.
///
/// - Short limits: the server ends a transaction after 2 s if its node is paused, because it holds
///   row locks. Other nodes wait for a lock a little longer than that.
/// - Isolation: locks return the newest row only at "read committed". A stricter default would add
///   failures.
/// - Durability: a commit is answered when it is durable, so `synchronous_commit` must not be off.
///   A stronger setting of the operator, such as waiting for a standby, stays.
const SETTINGS: &str = "
    SET statement_timeout = '10s';
    SET lock_timeout = '3s';
    SET idle_in_transaction_session_timeout = '2s';
    SET default_transaction_isolation = 'read committed';
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off';";

const FORM: &str = "write it as postgres://user:password@host:5432/database";

/// Parameters that may follow `?`. Unknown ones are refused here, because the driver would log them
/// with their values, such as a mistyped `password`.
const PARAMETERS: [&str; 14] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "statement-cache-capacity",
    "ssl-mode",
];

pub(super) fn parse(url: &str) -> Result<PgConnectOptions, StoreError> {
    let refused = |why: &str| StoreError::broken(format!("the store URL {why}: {FORM}"));
    let rest = url
        .strip_prefix("postgres://")
        .or_else(|| url.strip_prefix("postgresql://"))
        .ok_or_else(|| refused("does not start with postgres://"))?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // An unescaped `/` in the password would turn the text before it into the host.
    if path.contains('@') && !authority.contains('@') {
        return Err(refused("has `/`, `?` or `#` in its password (percent-encode it)"));
    }
    for parameter in path.split_once('?').map_or("", |(_, query)| query).split('&') {
        let name = parameter.split(['=', '[']).next().unwrap_or_default();
        if !name.is_empty() && !PARAMETERS.contains(&name) {
            return Err(refused("has a setting after `?` that is not known"));
        }
    }
    let options = PgConnectOptions::from_str(url)
        .map_err(|_| refused("cannot be read (special characters must be percent-encoded)"))?;
    let options = require_tls(options, path);
    let named = options.get_application_name().is_some();
    let options = if named { options } else { options.application_name("shikiri") };
    // Statements at debug level would hide the other log lines.
    Ok(options.disable_statement_logging())
}

/// Over a network, the server must prove its identity before it gets a password: by TLS with a
/// certificate for its name, verified with the machine's roots (`SSL_CERT_FILE`) or `sslrootcert`.
/// Only `sslmode=disable` in the URL turns that off; an environment variable does not.
fn require_tls(options: PgConnectOptions, path: &str) -> PgConnectOptions {
    if options.get_socket().is_some() || is_loopback(options.get_host()) {
        return options;
    }
    let is_written = path.contains("sslmode=") || path.contains("ssl-mode=");
    match options.get_ssl_mode() {
        PgSslMode::Disable | PgSslMode::VerifyCa if is_written => options,
        // Modes that make TLS optional or skip the certificate do not protect.
        _ => options.ssl_mode(PgSslMode::VerifyFull),
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    // A path names a local socket.
    host.eq_ignore_ascii_case("localhost")
        || host.starts_with('/')
        || bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Connects and applies the settings.
pub(super) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let connecting = async {
        let mut connection = PgConnection::connect_with(options).await?;
        set_up(&mut connection).await?;
        Ok(connection)
    };
    within(CONNECT_TIMEOUT, connecting).await
}

pub(super) async fn set_up(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(SETTINGS).execute(connection).await.map(drop)
}

/// Needed besides the server's own limits: the network may lose the server's answer.
pub(super) async fn within<T, E: From<sqlx::Error>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let silent = || std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time");
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(sqlx::Error::Io(silent()).into()))
}

/// The error of the first connection, for the person who starts the program.
pub(super) fn connect_error(error: &sqlx::Error, options: &PgConnectOptions) -> StoreError {
    let server = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let user = options.get_username();
    let database = options.get_database().unwrap_or(user);
    let code = error.as_database_error().and_then(|e| e.code()).unwrap_or_default();
    let message = match (&*code, error) {
        ("28P01" | "28000", _) => format!(
            "PostgreSQL at {server} refused user {user}: correct user or password in the store URL \
             (or the server's pg_hba.conf)"
        ),
        ("3D000", _) => format!(
            "PostgreSQL at {server} has no database {database}: create it (createdb {database}) or \
             correct the store URL"
        ),
        ("42501", _) => format!(
            "user {user} may not create tables in database {database} at {server}: \
             GRANT CREATE ON SCHEMA public TO \"{user}\""
        ),
        (_, sqlx::Error::Tls(cause)) => no_trusted_tls(&server, cause),
        // The driver reports an untrusted certificate as a failed read.
        (_, sqlx::Error::Io(cause)) if cause.to_string().contains("certificate") => {
            no_trusted_tls(&server, cause)
        }
        (_, sqlx::Error::Database(cause))
            if PostgresErrorClass::classify(error) == PostgresErrorClass::Rejected =>
        {
            format!("PostgreSQL at {server} refused: {cause}")
        }
        _ => {
            return StoreError::unavailable(one_line(&format!(
                "cannot use PostgreSQL at {server} ({error}): start it or correct the store URL"
            )));
        }
    };
    StoreError::broken(one_line(&message))
}

fn no_trusted_tls(server: &str, cause: &dyn std::fmt::Display) -> String {
    format!(
        "no trusted TLS connection to PostgreSQL at {server} ({cause}): name its CA with \
         sslrootcert=FILE in the store URL, or write sslmode=disable if the network is private"
    )
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> String {
        format!("{:?}", parse(url).unwrap().get_ssl_mode())
    }

    #[test]
    fn a_server_elsewhere_must_prove_who_it_is_unless_the_url_says_otherwise() {
        for (url, wanted) in [
            ("postgres://me:pw@db.example/x", "VerifyFull"),
            ("postgres://me:pw@10.0.0.1:5432/x", "VerifyFull"),
            ("postgres://me:pw@0.0.0.0/x", "VerifyFull"),
            ("postgres://me:pw@db/x?sslmode=prefer", "VerifyFull"),
            ("postgres://me:pw@db/x?sslmode=require", "VerifyFull"),
            ("postgres://me:pw@localhost/x?host=db", "VerifyFull"),
            ("postgres://me:pw@localhost/x?hostaddr=10.0.0.1", "VerifyFull"),
            ("postgres://me:pw@localhost.example/x", "VerifyFull"),
            ("postgres://me:pw@db/x?sslmode=verify-ca", "VerifyCa"),
            ("postgres://me:pw@db/x?sslmode=disable", "Disable"),
            ("postgres://me:pw@db/x?sslmode=disable&sslmode=require", "VerifyFull"),
            // A loopback connection cannot be intercepted.
            ("postgres://me:pw@127.0.0.1/x", "Prefer"),
            ("postgres://me:pw@[::1]:5432/x", "Prefer"),
            ("postgres://me:pw@localhost/x", "Prefer"),
            ("postgres:///x?host=/run/postgresql", "Prefer"),
            ("postgres://me:pw@localhost/x?sslmode=disable", "Disable"),
        ] {
            assert_eq!(mode(url), wanted, "{url}");
        }
    }
}
