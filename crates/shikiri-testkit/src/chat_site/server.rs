//! The HTTP server of the site.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};

use super::{Arrived, ChatSite, Shared};

const PAGE: &str = include_str!("page.html");
const LOGIN: &str = include_str!("login.html");
/// In rooms that want a login, a client with this cookie is logged in.
const COOKIE: &str = "person=known";
/// Characters of an answer that are sent at once.
const PIECE: usize = 40;

type World = State<Arc<Shared>>;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/{room}/", get(page))
        .route("/{room}/c/{chat}", get(chat_page))
        .route("/{room}/login", get(|| async { Html(LOGIN) }))
        .route("/{room}/pass", get(pass))
        .route("/{room}/history/{chat}", get(history))
        .route("/{room}/ask", post(ask))
        .route("/{room}/answer/{chat}/{turn}", get(answer))
        .route("/{room}/done", post(done))
        .with_state(shared)
}

async fn page(State(world): World, Path(room): Path<String>, headers: HeaderMap) -> Response {
    show(&world, &room, &headers)
}

/// Sets a persistent cookie for each client.
async fn pass(State(world): World, Path(room): Path<String>) -> Response {
    match world.manner(&room) {
        Some(manner) if manner["knows_the_person"] == true => {
            let cookie = format!("{COOKIE}; Path=/; Max-Age=86400");
            (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
        }
        _ => StatusCode::FORBIDDEN.into_response(),
    }
}

async fn chat_page(
    State(world): World,
    Path((room, chat)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let is_there = is_there(&world, &chat);
    match world.manner(&room).map(|manner| manner["gone"].clone()) {
        Some(gone) if !is_there && gone == "status" => {
            (StatusCode::NOT_FOUND, Html("<title>Not found</title>")).into_response()
        }
        Some(gone) if !is_there && gone == "redirect" => {
            Redirect::to(&format!("/{room}/")).into_response()
        }
        _ => show(&world, &room, &headers),
    }
}

fn is_there(world: &Shared, chat: &str) -> bool {
    let log = world.log();
    log.chats.contains_key(chat) && !log.deleted.contains(chat)
}

fn show(world: &Shared, room: &str, headers: &HeaderMap) -> Response {
    let Some(manner) = world.manner(room) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let cookie = headers.get(header::COOKIE).and_then(|cookie| cookie.to_str().ok());
    let is_known = cookie.is_some_and(|cookie| cookie.contains(COOKIE));
    if manner["login"] == "redirect" || (manner["login"] == "cookie" && !is_known) {
        return Redirect::to(&format!("/{room}/login")).into_response();
    }
    let page = PAGE.replacen("MANNER", &manner.to_string(), 1).replacen(
        "BASE",
        &json!(format!("/{room}/")).to_string(),
        1,
    );
    Html(page).into_response()
}

async fn history(State(world): World, Path((_, chat)): Path<(String, String)>) -> Response {
    if !is_there(&world, &chat) {
        return StatusCode::NOT_FOUND.into_response();
    }
    Json(world.log().chats.get(&chat).cloned().unwrap_or_default()).into_response()
}

async fn ask(State(world): World, Path(room): Path<String>, body: String) -> Response {
    let Ok(asked) = serde_json::from_str::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let text = asked["text"].as_str().unwrap_or_default().to_owned();
    let (chat, turn) = {
        let mut log = world.log();
        let fresh = format!("{room}-{}", log.chats.len() + 1);
        let chat = asked["chat"].as_str().map_or(fresh, str::to_owned);
        let turns = log.chats.entry(chat.clone()).or_default();
        turns.push((text.clone(), ChatSite::answer_to(&text)));
        let turn = turns.len() - 1;
        log.sends.push(Arrived { room, chat: chat.clone(), text });
        (chat, turn)
    };
    world.changed();
    Json(json!({ "chat": chat, "turn": turn })).into_response()
}

/// The answer, piece by piece. If the question has the word `hold`, it stops after the first.
async fn answer(
    State(world): World,
    Path((room, chat, turn)): Path<(String, String, usize)>,
) -> Response {
    let Some((question, text)) =
        world.log().chats.get(&chat).and_then(|turns| turns.get(turn)).cloned()
    else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let pause = world.manner(&room).and_then(|m| m["piece_ms"].as_u64()).unwrap_or(5);
    let is_held = question.split_whitespace().any(|word| word == "hold");
    let letters: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = letters.chunks(PIECE).map(|piece| piece.iter().collect()).collect();
    let released = world.released.subscribe();
    let body = stream::unfold(
        (pieces.into_iter().enumerate(), released),
        move |(mut pieces, mut released)| async move {
            let (number, piece) = pieces.next()?;
            if number > 0 {
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            if number == 1 && is_held {
                released.wait_for(|released| *released).await.ok()?;
            }
            Some((Ok::<_, std::convert::Infallible>(piece), (pieces, released)))
        },
    );
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from_stream(body)).into_response()
}

async fn done(State(world): World, body: String) -> StatusCode {
    let report: Value = serde_json::from_str(&body).unwrap_or_default();
    let (chat, turn) = (report["chat"].as_str().unwrap_or_default(), report["turn"].as_u64());
    {
        let mut log = world.log();
        let turn = turn.and_then(|turn| usize::try_from(turn).ok()).unwrap_or_default();
        let question = log.chats.get(chat).and_then(|turns| turns.get(turn)).cloned();
        if let (Some((question, _)), Some(ms)) = (question, report["ms"].as_f64()) {
            log.own_ms.insert(question, ms);
        }
    }
    world.changed();
    StatusCode::NO_CONTENT
}
