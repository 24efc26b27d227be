//! From a store URL to a connection, and from a failure to one line that says what to do next.
//! The URL holds the password, so neither it nor anything cut out of it is ever shown.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};

use super::fault::Fault;
use crate::error::StoreError;

/// A server that does not answer by then is as good as down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What we rely on, whatever the server's own settings are.
///
/// - Short limits: a node that is paused inside a transaction must not hold its row locks, so
///   the server ends it after 2 s; those who wait for the lock wait a little longer than that.
/// - Locks give the newest row only at "read committed"; a stricter default would add failures.
/// - A commit is answered when it is durable, so `synchronous_commit` must not be off; a stronger
///   setting (a standby has it too) is the operator's and stays.
const SETTINGS: &str = "
    SET statement_timeout = '10s';
    SET lock_timeout = '3s';
    SET idle_in_transaction_session_timeout = '2s';
    SET default_transaction_isolation = 'read committed';
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off';";

const FORM: &str = "write it as postgres://user:password@host:5432/database";

/// Settings that may follow `?`. An unknown one is refused here because the driver would log it
/// with its value, which may be a mistyped `password`.
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
    // A raw `/` in the password would make a host of its first half.
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
    let named = options.get_application_name().is_some();
    let options = if named { options } else { options.application_name("shikiri") };
    // Every statement at debug level would drown the rest of the log.
    Ok(options.disable_statement_logging())
}

/// A connection with our settings.
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

/// The server's own limits do not help when the network swallows its answer.
pub(super) async fn within<T, E: From<sqlx::Error>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let silent = || std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time");
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(sqlx::Error::Io(silent()).into()))
}

/// Why the first connection failed, for the person who started the program.
pub(super) fn explain(error: &sqlx::Error, options: &PgConnectOptions) -> StoreError {
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
        (_, sqlx::Error::Tls(cause)) => format!(
            "no TLS connection to PostgreSQL at {server} ({cause}): set sslmode and sslrootcert in \
             the store URL"
        ),
        (_, sqlx::Error::Database(cause)) if Fault::of(error) == Fault::Rejected => {
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

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
