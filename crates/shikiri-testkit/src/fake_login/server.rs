//! The fake's responses.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router, response};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Book, Login, Shared};

/// The scope that every call needs.
const BASIC: &str = "basic";

type World = State<Arc<Shared>>;
type Pairs = BTreeMap<String, String>;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/.well-known/oauth-protected-resource/mcp", get(resource))
        .route("/.well-known/oauth-authorization-server", get(metadata))
        .route("/register", post(register))
        .route("/authorize", get(authorize))
        .route("/token", post(token))
        .route("/mcp", post(mcp).get(unknown))
        .with_state(shared)
}

async fn resource(State(world): World) -> Json<Value> {
    let issuer = world.book().issuer.clone().unwrap_or_else(|| world.issuer());
    Json(json!({
        "resource": format!("{}/mcp", world.issuer()),
        "authorization_servers": [issuer],
    }))
}

async fn metadata(State(world): World) -> Json<Value> {
    let issuer = world.issuer();
    Json(json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "registration_endpoint": format!("{issuer}/register"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        "authorization_response_iss_parameter_supported": true,
    }))
}

async fn register(State(world): World, Json(asked): Json<Value>) -> Response {
    let mut book = world.book();
    book.asked.push("register".to_owned());
    let redirect = asked["redirect_uris"][0].as_str().unwrap_or_default().to_owned();
    let (id, secret) = (book.draw("client"), book.draw("secret"));
    book.registered.insert(id.clone(), (secret.clone(), redirect.clone()));
    let answer = json!({ "client_id": id, "client_secret": secret, "redirect_uris": [redirect] });
    (StatusCode::CREATED, Json(answer)).into_response()
}

async fn authorize(State(world): World, Query(asked): Query<Pairs>) -> Response {
    let issuer = world.issuer();
    let mut book = world.book();
    book.asked.push("authorize".to_owned());
    let said = |name: &str| asked.get(name).cloned().unwrap_or_default();
    let client = said("client_id");
    book.clients.insert(client.clone());
    book.scopes.push(said("scope"));
    let known = book.registered.get(&client).is_some_and(|(_, at)| *at == said("redirect_uri"));
    if !known || said("response_type") != "code" || said("code_challenge_method") != "S256" {
        book.faults.push(format!("authorize: {asked:?}"));
        return StatusCode::BAD_REQUEST.into_response();
    }
    let code = book.draw("code");
    let login = Login {
        client,
        redirect: said("redirect_uri"),
        challenge: said("code_challenge"),
        scope: said("scope"),
    };
    book.codes.insert(code.clone(), login);
    let state = book.told_state.clone().unwrap_or_else(|| said("state"));
    let iss = book.told_issuer.clone().unwrap_or(issuer);
    let mut back = reqwest::Url::parse(&said("redirect_uri")).expect("a redirect address");
    back.query_pairs_mut().append_pair("code", &code).append_pair("state", &state);
    if !iss.is_empty() {
        back.query_pairs_mut().append_pair("iss", &iss);
    }
    Redirect::to(back.as_str()).into_response()
}

async fn token(State(world): World, headers: HeaderMap, body: String) -> Response {
    let asked = pairs(&body);
    let said = |name: &str| asked.get(name).cloned().unwrap_or_default();
    let resource = format!("{}/mcp", world.issuer());
    let mut book = world.book();
    book.asked.push(said("grant_type"));
    let Some(client) = client_of(&mut book, &headers, &said("client_id")) else {
        return refuse("invalid_client");
    };
    let granted = match said("grant_type").as_str() {
        "authorization_code" => book.codes.remove(&said("code")).filter(|login| {
            let digest = Sha256::digest(said("code_verifier").as_bytes());
            login.client == client
                && login.redirect == said("redirect_uri")
                && login.challenge == URL_SAFE_NO_PAD.encode(digest)
        }),
        "refresh_token" => book.refresh.remove(&said("refresh_token")).and_then(|(of, scope)| {
            let login = Login { client: of, scope, redirect: said(""), challenge: said("") };
            (login.client == client).then_some(login)
        }),
        _ => None,
    };
    let Some(login) = granted else { return refuse("invalid_grant") };
    // If the fake issues tokens for another server, it does not know that server's address.
    if book.issuer.is_none() && !said("resource").ends_with("/mcp") {
        book.faults.push(format!("resource is {:?} and not {resource}", said("resource")));
    }
    let (access, refresh) = (book.draw("access"), book.draw("refresh"));
    book.access.insert(access.clone(), login.scope.clone());
    book.refresh.insert(refresh.clone(), (client, login.scope.clone()));
    Json(json!({
        "access_token": access,
        "token_type": "Bearer",
        "expires_in": book.lifetime,
        "refresh_token": refresh,
        "scope": login.scope,
    }))
    .into_response()
}

/// The client, if HTTP Basic proves its identity.
fn client_of(book: &mut Book, headers: &HeaderMap, named: &str) -> Option<String> {
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let basic = header.and_then(|text| text.strip_prefix("Basic "));
    let decoded = basic.and_then(|text| STANDARD.decode(text).ok());
    let pair = decoded.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let (id, secret) = pair.split_once(':').unwrap_or((named, ""));
    book.clients.insert(id.to_owned());
    let is_known = book.registered.get(id).is_some_and(|(known, _)| known == secret);
    is_known.then(|| id.to_owned())
}

fn refuse(error: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({ "error": error }))).into_response()
}

fn pairs(body: &str) -> Pairs {
    let url = reqwest::Url::parse(&format!("http://form/?{body}")).expect("a form");
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

/// Tells a caller without a token what is needed.
async fn unknown(State(world): World) -> Response {
    challenge(&world, StatusCode::UNAUTHORIZED, BASIC, "invalid_token")
}

async fn mcp(State(world): World, headers: HeaderMap, body: Bytes) -> Response {
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let book = world.book();
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default();
    let Some(scope) = book.access.get(token).filter(|_| !book.refuses_all) else {
        return challenge(&world, StatusCode::UNAUTHORIZED, BASIC, "invalid_token");
    };
    let wider = book.wider.as_deref().filter(|_| asked["method"] == "tools/call");
    if let Some(wider) = wider.filter(|wider| !scope.split(' ').any(|one| one == *wider)) {
        return challenge(&world, StatusCode::FORBIDDEN, wider, "insufficient_scope");
    }
    let result = match asked["method"].as_str().unwrap_or_default() {
        "server/discover" => json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} },
            "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "fake", "version": "1" } },
        }),
        "tools/list" => json!({ "tools": [
            { "name": "whoami", "description": "says hello", "inputSchema": { "type": "object" } },
        ] }),
        "tools/call" => json!({
            "resultType": "complete",
            "content": [{ "type": "text", "text": "hello, you" }],
        }),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    Json(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result })).into_response()
}

fn challenge(world: &Shared, status: StatusCode, scope: &str, error: &str) -> response::Response {
    let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", world.issuer());
    let said =
        format!("Bearer error=\"{error}\", scope=\"{scope}\", resource_metadata=\"{metadata}\"");
    (status, [(header::WWW_AUTHENTICATE, said)]).into_response()
}
