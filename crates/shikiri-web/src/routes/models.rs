//! `/v1/models`

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use shikiri_model::execution::TokenPrice;
use shikiri_model::ids::ModelId;
use shikiri_model::models::{ActiveStatus, EngineKind};
use shikiri_tenancy::models::{ModelPatch, PricesPatch};
use utoipa::ToSchema;

use super::created;
use crate::access_extractors::{ActingApp, AdminAccess, AnyKey, ModelInPath};
use crate::json_extractor::{Json, JsonObject, some};
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{PageQuery, Query};
use crate::views::{ActiveStatusSchema, EngineSchema, ListPage, ModelJson};
use crate::web_state::SharedWebState;

/// A new model.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewModel)]
pub(crate) struct NewModelBody {
    /// 1 to 100 letters, digits, `_` or `-`.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,100}$")]
    id: Option<ModelId>,
    #[schema(value_type = EngineSchema)]
    engine: EngineKind,
    /// As the provider calls it; the id, if left out.
    model_name: Option<String>,
    region: Option<String>,
    #[schema(value_type = Option<ActiveStatusSchema>)]
    status: Option<ActiveStatus>,
    /// Each stands for one active model of an engine.
    aliases: Option<Vec<String>>,
    subagent_model: Option<String>,
    /// Added to the engine's environment. Values are never shown again.
    env: Option<BTreeMap<String, String>>,
    /// Names in `env` that stay out of runs. Names that end in KEY, TOKEN, SECRET, PASSWORD or
    /// CREDENTIALS always do.
    secret_env: Option<Vec<String>>,
    #[schema(value_type = Option<PricesChangeBody>)]
    prices: Option<JsonObject<PricesChangeBody>>,
}

/// What is left out stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ModelChange)]
pub(crate) struct ModelChangeBody {
    #[schema(value_type = Option<EngineSchema>)]
    engine: Option<EngineKind>,
    model_name: Option<String>,
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    region: Option<Option<String>>,
    #[schema(value_type = Option<ActiveStatusSchema>)]
    status: Option<ActiveStatus>,
    aliases: Option<Vec<String>>,
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    subagent_model: Option<Option<String>>,
    /// Those that are named are set, or removed by null; `***` leaves one as it is.
    #[serde(default)]
    env: BTreeMap<String, Option<String>>,
    secret_env: Option<Vec<String>>,
    #[schema(value_type = Option<PricesChangeBody>)]
    prices: Option<JsonObject<PricesChangeBody>>,
}

/// Dollars per million tokens, with at most six decimals. What is left out stays as it is; for a
/// new model, that is 0.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PricesChange)]
struct PricesChangeBody {
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000)]
    input: Option<TokenPrice>,
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000)]
    output: Option<TokenPrice>,
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000)]
    cache_write_5m: Option<TokenPrice>,
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000)]
    cache_write_1h: Option<TokenPrice>,
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000)]
    cache_read: Option<TokenPrice>,
}

impl From<PricesChangeBody> for PricesPatch {
    fn from(change: PricesChangeBody) -> Self {
        let PricesChangeBody { input, output, cache_write_5m, cache_write_1h, cache_read } = change;
        Self { input, output, cache_write_5m, cache_write_1h, cache_read }
    }
}

/// Makes a model (admin)
#[utoipa::path(post, path = "/v1/models", tag = "models", request_body = NewModelBody,
    responses((status = 201, description = "The new model", body = ModelJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn create_model(
    _: AdminAccess,
    ActingApp(app): ActingApp,
    Json(new): Json<NewModelBody>,
) -> Result<Response, ProblemResponse> {
    let env = new.env.unwrap_or_default();
    let patch = ModelPatch {
        engine: None,
        model_name: new.model_name,
        region: Some(new.region),
        status: new.status,
        aliases: new.aliases,
        subagent_model: Some(new.subagent_model),
        env: env.into_iter().map(|(name, value)| (name, Some(value))).collect(),
        secret_env: new.secret_env,
        prices: new.prices.map(|JsonObject(prices)| prices.into()).unwrap_or_default(),
    };
    let model = ModelJson::from(app.tenancy.create_model(new.id, new.engine, patch).await?);
    Ok(created(&format!("/v1/models/{}", model.id), &model))
}

/// Lists the models
#[utoipa::path(get, path = "/v1/models", tag = "models", params(PageQuery),
    responses((status = 200, description = "A page of models", body = ListPage<ModelJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_models(
    caller: AnyKey,
    State(web): State<SharedWebState>,
    Query(paging): Query<PageQuery>,
) -> Result<axum::Json<ListPage<ModelJson>>, ProblemResponse> {
    let (after, limit) = paging.position_and_limit()?;
    let (models, next) = web.app.tenancy.list_models(after, limit).await?;
    let models: Vec<ModelJson> = models.into_iter().map(|model| caller.model(model)).collect();
    Ok(axum::Json(ListPage::new((models, next))))
}

/// Shows a model
#[utoipa::path(get, path = "/v1/models/{m}", tag = "models", params(("m" = String, Path)),
    responses((status = 200, description = "The model", body = ModelJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_model(
    caller: AnyKey,
    ModelInPath(id): ModelInPath,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<ModelJson>, ProblemResponse> {
    Ok(axum::Json(caller.model(web.app.tenancy.model(&id).await?)))
}

/// Changes a model (admin)
#[utoipa::path(patch, path = "/v1/models/{m}", tag = "models", params(("m" = String, Path)),
    request_body = ModelChangeBody,
    responses((status = 200, description = "The model", body = ModelJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn change_model(
    _: AdminAccess,
    ModelInPath(id): ModelInPath,
    ActingApp(app): ActingApp,
    Json(change): Json<ModelChangeBody>,
) -> Result<axum::Json<ModelJson>, ProblemResponse> {
    let patch = ModelPatch {
        engine: change.engine,
        model_name: change.model_name,
        region: change.region,
        status: change.status,
        aliases: change.aliases,
        subagent_model: change.subagent_model,
        env: change.env,
        secret_env: change.secret_env,
        prices: change.prices.map(|JsonObject(prices)| prices.into()).unwrap_or_default(),
    };
    Ok(axum::Json(app.tenancy.update_model(&id, patch).await?.into()))
}
