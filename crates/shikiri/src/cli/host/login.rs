//! `shikiri host login SERVER` and `logout`: our identity at a server that asks for one.

use std::sync::Arc;

use async_trait::async_trait;
use clap::Args;
use shikiri_client::{LoginBrowser, OAuthTokenProvider};
use shikiri_host::Host;
use shikiri_model::host::{HostTransport, ServerSpec, sanitize_line};

use super::exit_of;
use super::places::oauth_for;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::output::{Output, note};

#[derive(Args)]
pub(super) struct Arguments {
    /// The server, as `shikiri host list` names it
    server: String,
}

/// Shows the page's address, for the person to open on this machine.
pub(super) struct Terminal;

#[async_trait]
impl LoginBrowser for Terminal {
    async fn show(&self, server: &str, page: &str) -> Result<(), String> {
        let server = sanitize_line(server);
        note(&format!(
            "shikiri: {server} wants you to log in; open this page on this machine within five \
             minutes:\n{}",
            address(page)?
        ));
        Ok(())
    }
}

/// Untrusted, so control characters are refused; a shortened address would be useless.
fn address(page: &str) -> Result<&str, String> {
    let is_plain = page.bytes().all(|byte| byte.is_ascii_graphic());
    let is_web = page.starts_with("https://") || page.starts_with("http://");
    match is_plain && is_web {
        true => Ok(page),
        false => Err("its login page has no address that can be shown".to_owned()),
    }
}

pub(super) async fn log_in(
    host: &Host,
    config: &Config,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let spec = spec(host, &arguments.server)?;
    let HostTransport::Http { headers, .. } = &spec.reach else { return Err(no_login(spec)) };
    if headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
        let what = format!("{} has a header Authorization, which is sent instead", spec.name);
        return Err(Failure::new(Exit::Usage, what, "take it out of the configuration first"));
    }
    let oauth = of(host, config, spec)?;
    let issuer = oauth.log_in().await.map_err(|error| login_failure(spec, &error))?;
    Output::stdout().line(&format!("logged in at {} for {}", sanitize_line(&issuer), spec.name))
}

pub(super) async fn log_out(
    host: &Host,
    config: &Config,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let spec = spec(host, &arguments.server)?;
    let oauth = of(host, config, spec)?;
    let was = oauth.log_out().await.map_err(|error| login_failure(spec, &error))?;
    let line = match was {
        true => format!("logged out of {}", spec.name),
        false => format!("no login was kept for {}", spec.name),
    };
    Output::stdout().line(&line)
}

fn spec<'a>(host: &'a Host, name: &str) -> Result<&'a ServerSpec, Failure> {
    let found = host.servers().iter().find(|spec| spec.name == name || host.is_by_address());
    found.ok_or_else(|| {
        let what = format!("there is no server {name:?}");
        Failure::new(Exit::NotFound, what, "`shikiri host list` shows what there is")
    })
}

fn of(host: &Host, config: &Config, spec: &ServerSpec) -> Result<OAuthTokenProvider, Failure> {
    let oauth = oauth_for(host.runtime(), config, spec, Some(Arc::new(Terminal)));
    oauth.ok_or_else(|| no_login(spec))
}

fn no_login(spec: &ServerSpec) -> Failure {
    let what = format!("{} is a program of this machine", spec.name);
    Failure::new(Exit::Usage, what, "it is started, and wants no login")
}

fn login_failure(spec: &ServerSpec, error: &shikiri_client::ClientError) -> Failure {
    Failure::told(exit_of(error), format!("{}: {error}", spec.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_would_act_on_the_terminal_is_not_shown() {
        assert!(address("https://a.example/authorize?x=1%202").is_ok());
        assert!(address("https://a.example/\u{1b}]0;x\u{7}").is_err());
        assert!(address("javascript:alert(1)").is_err());
    }
}
