//! Every route on one screen.

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::routes::{
    audit, conversations, delegations, dialogues, docs, executions, files, health, hooks, keys,
    lanes, models, projects, run_events, runs, servers, skills, tasks, team_agents, team_messages,
    tenants, usage,
};
use crate::web_state::SharedWebState;
use crate::{access_extractors, host_check, openapi, problem_response, request_metrics};

/// The routes, with their OpenAPI description from the same handlers.
pub(crate) fn api() -> OpenApiRouter<SharedWebState> {
    OpenApiRouter::with_openapi(openapi::base())
        // Public; listed in access_extractors::PUBLIC.
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(docs::openapi_document))
        .routes(routes!(docs::docs))
        // Routes that need a key.
        .routes(routes!(tenants::create_tenant, tenants::list_tenants))
        .routes(routes!(tenants::show_tenant, tenants::change_tenant, tenants::remove_tenant))
        .routes(routes!(keys::create_key, keys::list_keys))
        .routes(routes!(keys::revoke_key))
        .routes(routes!(models::create_model, models::list_models))
        .routes(routes!(models::show_model, models::change_model))
        .routes(routes!(audit::list_audit))
        .routes(routes!(servers::create_server, servers::list_servers))
        .routes(routes!(servers::show_server, servers::change_server, servers::remove_server))
        .routes(routes!(servers::check_server))
        .routes(routes!(skills::create_skill, skills::list_skills))
        .routes(routes!(skills::show_skill, skills::put_skill, skills::remove_skill))
        .routes(routes!(conversations::create_conversation, conversations::list_conversations))
        .routes(routes!(
            conversations::show_conversation,
            conversations::change_conversation,
            conversations::remove_conversation
        ))
        .routes(routes!(conversations::archive_conversation))
        .routes(routes!(conversations::list_messages))
        .routes(routes!(runs::start_run, runs::list_runs))
        .routes(routes!(runs::show_run))
        .routes(routes!(run_events::follow_run))
        .routes(routes!(runs::cancel_run))
        .routes(routes!(runs::answer_run))
        .routes(routes!(runs::update_run))
        .routes(routes!(runs::list_questions))
        .routes(routes!(executions::execute, executions::list_executions))
        .routes(routes!(executions::list_all_executions))
        .routes(routes!(executions::show_execution))
        .routes(routes!(executions::follow_execution))
        .routes(routes!(executions::execution_tools))
        .routes(routes!(executions::execution_usage))
        .routes(routes!(executions::cancel_execution))
        .routes(routes!(files::list_files))
        .routes(routes!(files::put_file, files::get_file, files::remove_file))
        .routes(routes!(usage::show_usage))
        .routes(routes!(projects::create_project, projects::list_projects))
        .routes(routes!(projects::show_project, projects::remove_project))
        .routes(routes!(team_agents::add_agent, team_agents::list_agents))
        .routes(routes!(
            team_agents::show_agent,
            team_agents::change_agent,
            team_agents::remove_agent
        ))
        .routes(routes!(tasks::create_task, tasks::list_tasks))
        .routes(routes!(tasks::show_task, tasks::change_task))
        .routes(routes!(team_messages::post_message, team_messages::list_team_messages))
        .routes(routes!(delegations::list_delegations))
        .routes(routes!(delegations::show_delegation))
        .routes(routes!(dialogues::list_dialogues))
        .routes(routes!(dialogues::show_dialogue))
        .routes(routes!(dialogues::dialogue_messages))
        .routes(routes!(dialogues::follow_dialogue))
        .routes(routes!(dialogues::cancel_dialogue))
        .routes(routes!(lanes::list_lanes))
        .routes(routes!(lanes::history))
        .routes(routes!(hooks::take_hook))
        .routes(routes!(hooks::list_subagents))
        .routes(routes!(hooks::hook_log))
        .routes(routes!(hooks::hook_stats))
}

/// The whole service: our routes and the mounted ones, which check their own keys.
pub(crate) fn build(web: &SharedWebState, other_routes: Router) -> Router {
    let (operations, _) = api().split_for_parts();
    docs::add_page_files(operations)
        .method_not_allowed_fallback(problem_response::on_wrong_method)
        .fallback(problem_response::on_unknown_path)
        .layer(from_fn_with_state(web.clone(), access_extractors::authenticate))
        .with_state(web.clone())
        .merge(other_routes)
        // The last layer is the outermost: it counts whatever happens further in.
        .layer(from_fn_with_state(web.clone(), host_check::check_host_and_origin))
        .layer(CatchPanicLayer::custom(problem_response::on_panic))
        .layer(map_response(set_security_headers))
        .layer(from_fn_with_state(web.clone(), request_metrics::record_request))
}

/// Tells browsers and proxies not to guess content types and not to cache.
async fn set_security_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Every (method, path template), for tests that visit them all.
pub fn operations() -> Vec<(String, String)> {
    let document = serde_json::to_value(openapi::build_document()).unwrap_or_default();
    let paths = document["paths"].as_object().cloned().unwrap_or_default();
    let mut all = Vec::new();
    for (path, item) in paths {
        let methods = item.as_object().into_iter().flat_map(|item| item.keys());
        all.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
    }
    all
}
