//! The servers that a host can call, from `.mcp.json`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// A server and its transport, with every variable filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    pub name: String,
    pub reach: HostTransport,
    pub oauth: OAuthSpec,
}

/// Configured parts of the login at a server. Usually empty: the server provides everything when it
/// asks for a login.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OAuthSpec {
    /// The id of a manual registration at the server's authorization server.
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    /// Scopes for the first login, instead of those that the server names.
    pub scopes: Vec<String>,
    /// The address of a published document with our client metadata. It is our client id where the
    /// server supports that.
    pub client_metadata_url: Option<String>,
    /// The redirect port of the manual registration.
    pub callback_port: Option<u16>,
}

impl std::fmt::Debug for OAuthSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OAuthSpec({:?}, scopes {:?})", self.client_id, self.scopes)
    }
}

#[derive(Clone, PartialEq, Eq)]
pub enum HostTransport {
    Stdio {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
        cwd: Option<String>,
        /// Program and arguments as written, because a variable may hold a secret.
        written: String,
    },
    Http {
        url: String,
        headers: BTreeMap<String, String>,
    },
    /// The older transport: a stream, and an endpoint that it names.
    Sse {
        url: String,
        headers: BTreeMap<String, String>,
    },
}

impl std::fmt::Debug for HostTransport {
    /// Headers and variables hold secrets, so only their names are printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdio { written, env, .. } => {
                write!(f, "Stdio({written:?}, env {:?})", env.keys())
            }
            Self::Http { headers, .. } => {
                write!(f, "Http({:?}, headers {:?})", self.endpoint(), headers.keys())
            }
            Self::Sse { headers, .. } => {
                write!(f, "Sse({:?}, headers {:?})", self.endpoint(), headers.keys())
            }
        }
    }
}

impl HostTransport {
    /// A program without variables.
    pub fn program(command: &str, args: &[String]) -> Self {
        Self::Stdio {
            command: command.to_owned(),
            args: args.to_vec(),
            env: BTreeMap::new(),
            cwd: None,
            written: written(command, args),
        }
    }

    /// Identifies the server: its address without parts that may be secret, or its program. A
    /// resume point is valid only for the same endpoint.
    pub fn endpoint(&self) -> String {
        match self {
            Self::Stdio { written, .. } => format!("stdio:{written}"),
            Self::Http { url, .. } | Self::Sse { url, .. } => {
                let plain = url.split(['?', '#']).next().unwrap_or(url);
                match plain.split_once("://") {
                    Some((scheme, rest)) => {
                        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
                        let host = host.rsplit('@').next().unwrap_or(host);
                        format!("{scheme}://{host}/{path}")
                    }
                    None => plain.to_owned(),
                }
            }
        }
    }
}

fn written(command: &str, args: &[String]) -> String {
    let words = std::iter::once(command).chain(args.iter().map(String::as_str));
    words.collect::<Vec<_>>().join(" ")
}

/// Why a server of the file cannot be called. Other servers can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("server {name:?}: {reason}")]
pub struct ServerSpecError {
    pub name: String,
    pub reason: String,
}

#[derive(Deserialize)]
struct ServerFileEntry {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    oauth: Option<OAuthEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OAuthEntry {
    client_id: Option<String>,
    client_secret: Option<String>,
    /// Joined with spaces.
    #[serde(default)]
    scopes: String,
    client_metadata_url: Option<String>,
    callback_port: Option<u16>,
}

/// Reads the `mcpServers` of a file. The outer error is about the file itself.
pub fn read_servers(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Result<ServerSpec, ServerSpecError>>, String> {
    let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let servers = file.get("mcpServers").and_then(Value::as_object);
    let servers = servers.ok_or("it has no object \"mcpServers\"")?;
    let read = |(name, entry): (&String, &Value)| {
        read_entry(name, entry, variable)
            .map_err(|reason| ServerSpecError { name: name.clone(), reason })
    };
    Ok(servers.iter().map(read).collect())
}

fn read_entry(
    name: &str,
    entry: &Value,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ServerSpec, String> {
    let entry: ServerFileEntry =
        serde_json::from_value(entry.clone()).map_err(|error| error.to_string())?;
    let fill = |text: &str| expand_variables(text, variable);
    let fill_all = |map: &BTreeMap<String, String>| {
        map.iter()
            .map(|(key, value)| Ok((key.clone(), fill(value)?)))
            .collect::<Result<BTreeMap<_, _>, String>>()
    };
    let reach = match (entry.kind.as_deref(), &entry.command, &entry.url) {
        (None | Some("stdio"), Some(command), None) => HostTransport::Stdio {
            command: fill(command)?,
            args: entry.args.iter().map(|arg| fill(arg)).collect::<Result<_, _>>()?,
            env: fill_all(&entry.env)?,
            cwd: entry.cwd.as_deref().map(fill).transpose()?,
            written: written(command, &entry.args),
        },
        (None | Some("http" | "streamable-http" | "streamableHttp"), None, Some(url)) => {
            http_transport(&fill(url)?, fill_all(&entry.headers)?)?
        }
        (Some("sse"), None, Some(url)) => {
            sse_transport(http_transport(&fill(url)?, fill_all(&entry.headers)?)?)
        }
        (_, Some(_), Some(_)) => return Err("it has a command and a url: one of them".to_owned()),
        (_, None, None) => return Err("it has neither a command nor a url".to_owned()),
        (Some(kind), ..) => return Err(format!("its type {kind:?} does not fit what it has")),
    };
    let oauth = match entry.oauth {
        Some(oauth) => read_oauth(&oauth, &fill)?,
        None => OAuthSpec::default(),
    };
    Ok(ServerSpec { name: name.to_owned(), reach, oauth })
}

fn read_oauth(
    entry: &OAuthEntry,
    fill: &dyn Fn(&str) -> Result<String, String>,
) -> Result<OAuthSpec, String> {
    let client_secret = entry.client_secret.as_deref().map(fill).transpose()?;
    if client_secret.is_some() && entry.client_id.is_none() {
        return Err("its oauth has a clientSecret and no clientId".to_owned());
    }
    Ok(OAuthSpec {
        client_id: entry.client_id.as_deref().map(fill).transpose()?,
        client_secret,
        scopes: fill(&entry.scopes)?.split_whitespace().map(str::to_owned).collect(),
        client_metadata_url: entry.client_metadata_url.as_deref().map(fill).transpose()?,
        callback_port: entry.callback_port,
    })
}

/// A server given by its address.
pub fn http_transport(
    url: &str,
    headers: BTreeMap<String, String>,
) -> Result<HostTransport, String> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
        return Err(format!("its url {url:?} must start with http:// or https:// and a host"));
    }
    // URL parsers disagree about these characters.
    if url.contains(|c: char| c == '\\' || c.is_whitespace() || c.is_control()) {
        return Err(format!("its url {url:?} holds a character that no address has"));
    }
    Ok(HostTransport::Http { url: url.to_owned(), headers })
}

fn sse_transport(transport: HostTransport) -> HostTransport {
    match transport {
        HostTransport::Http { url, headers } => HostTransport::Sse { url, headers },
        other => other,
    }
}

/// Fills in `${VAR}` and `${VAR:-otherwise}`.
pub fn expand_variables(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inner, left)) = after.split_once('}') else { break };
        filled.push_str(before);
        let (name, otherwise) = match inner.split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise)),
            None => (inner, None),
        };
        let value = variable(name).or_else(|| otherwise.map(str::to_owned));
        filled.push_str(&value.ok_or_else(|| format!("the variable {name} is not set"))?);
        rest = left;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(servers: &str) -> Vec<Result<ServerSpec, ServerSpecError>> {
        let variable = |name: &str| (name == "KEY").then(|| "秘密".to_owned());
        read_servers(&format!("{{\"mcpServers\": {servers}}}"), &variable).unwrap()
    }

    #[test]
    fn each_kind_of_server_is_read_and_its_variables_are_filled_in() {
        let specs = read(
            r#"{ "a": { "command": "run", "args": ["--key=${KEY}", "${NO:-x}"], "env": { "K": "${KEY}" } },
                 "b": { "type": "http", "url": "https://u:p@h:1/mcp?k=${KEY}", "headers": { "Authorization": "Bearer ${KEY}" } } }"#,
        );
        let specs: Vec<_> = specs.into_iter().map(Result::unwrap).collect();
        assert_eq!(
            specs[0].reach,
            HostTransport::Stdio {
                command: "run".to_owned(),
                args: vec!["--key=秘密".to_owned(), "x".to_owned()],
                env: BTreeMap::from([("K".to_owned(), "秘密".to_owned())]),
                cwd: None,
                written: "run --key=${KEY} ${NO:-x}".to_owned(),
            }
        );
        assert_eq!(specs[0].reach.endpoint(), "stdio:run --key=${KEY} ${NO:-x}");
        assert_eq!(specs[1].reach.endpoint(), "https://h:1/mcp");
        let printed = format!("{specs:?}");
        assert!(!printed.contains("秘密") && printed.contains("Authorization"), "{printed}");
    }

    #[test]
    fn what_is_known_for_a_login_is_read_and_its_secret_is_not_printed() {
        let specs = read(
            r#"{ "a": { "url": "https://h/", "oauth": { "clientId": "us", "clientSecret": "${KEY}",
                 "scopes": "read write", "callbackPort": 4711 } },
                 "b": { "url": "https://h/", "oauth": { "clientSecret": "${KEY}" } },
                 "c": { "url": "https://h/" } }"#,
        );
        let oauth = specs[0].as_ref().unwrap().oauth.clone();
        let expected = OAuthSpec {
            client_id: Some("us".to_owned()),
            client_secret: Some("秘密".to_owned()),
            scopes: vec!["read".to_owned(), "write".to_owned()],
            client_metadata_url: None,
            callback_port: Some(4711),
        };
        assert_eq!(oauth, expected);
        assert!(!format!("{specs:?}").contains("秘密"));
        assert!(specs[1].as_ref().unwrap_err().reason.contains("no clientId"));
        assert_eq!(specs[2].as_ref().unwrap().oauth, OAuthSpec::default());
    }

    #[test]
    fn a_wrong_server_is_named_and_the_others_stay() {
        let specs = read(
            r#"{ "ok": { "url": "http://h/" }, "none": {}, "both": { "command": "c", "url": "http://h" },
                 "var": { "url": "http://${HOST}/" }, "odd": { "url": "file:///etc" }, "sse": { "type": "sse", "url": "http://h" },
                 "list": [], "space": { "url": "http://evil\\@h/" }, "kind": { "type": "stdio", "url": "http://h" } }"#,
        );
        let said: Vec<_> = specs.iter().filter_map(|it| it.as_ref().err()).collect();
        assert_eq!(said.len(), 7, "{said:?}");
        assert!(
            said.iter().any(|it| it.to_string() == "server \"var\": the variable HOST is not set")
        );
        assert!(read_servers("{", &|_| None).is_err());
        assert!(read_servers("{}", &|_| None).is_err());
    }
}
