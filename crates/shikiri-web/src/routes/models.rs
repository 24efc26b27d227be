//! `/v1/models`

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use shikiri_app::models::{ModelPatch, PricesPatch};
use shikiri_model::execution::Price;
use shikiri_model::ids::ModelId;
use shikiri_model::models::{EngineKind, Status};
use utoipa::ToSchema;

use super::created;
use crate::access::{ActingApp, Admin, AnyKey, ModelInPath};
use crate::error::Problem;
use crate::json::{Json, Object, some};
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::state::Shared;
use crate::views::{EngineJson, ModelJson, Page, StatusJson};

/// A new model.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewModel {
    /// 1 to 100 letters, digits, `_` or `-`.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,100}$")]
    id: Option<ModelId>,
    engine: EngineJson,
    /// As the provider calls it; the id, if left out.
    model_name: Option<String>,
    region: Option<String>,
    status: Option<StatusJson>,
    /// Each stands for one active model of an engine.
    aliases: Option<Vec<String>>,
    subagent_model: Option<String>,
    /// Added to the engine's environment. Values are never shown again.
    env: Option<BTreeMap<String, String>>,
    /// Names in `env` that stay out of runs. Names that end in KEY, TOKEN, SECRET, PASSWORD or
    /// CREDENTIALS always do.
    secret_env: Option<Vec<String>>,
    #[schema(value_type = Option<PricesChange>)]
    prices: Option<Object<PricesChange>>,
}

/// What is left out stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelChange {
    engine: Option<EngineJson>,
    model_name: Option<String>,
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    region: Option<Option<String>>,
    status: Option<StatusJson>,
    aliases: Option<Vec<String>>,
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    subagent_model: Option<Option<String>>,
    /// Those that are named are set, or removed by null; `***` leaves one as it is.
    #[serde(default)]
    env: BTreeMap<String, Option<String>>,
    secret_env: Option<Vec<String>>,
    #[schema(value_type = Option<PricesChange>)]
    prices: Option<Object<PricesChange>>,
}

/// Dollars per million tokens, with at most six decimals. What is left out stays as it is; for a
/// new model, that is 0.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PricesChange {
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000)]
    input: Option<Price>,
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000)]
    output: Option<Price>,
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000)]
    cache_write_5m: Option<Price>,
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000)]
    cache_write_1h: Option<Price>,
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1_000_000)]
    cache_read: Option<Price>,
}

impl From<PricesChange> for PricesPatch {
    fn from(change: PricesChange) -> Self {
        let PricesChange { input, output, cache_write_5m, cache_write_1h, cache_read } = change;
        Self { input, output, cache_write_5m, cache_write_1h, cache_read }
    }
}

/// Makes a model (admin)
#[utoipa::path(post, path = "/v1/models", tag = "models", request_body = NewModel,
    responses((status = 201, description = "The new model", body = ModelJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn create_model(
    _: Admin,
    ActingApp(app): ActingApp,
    Json(new): Json<NewModel>,
) -> Result<Response, Problem> {
    let env = new.env.unwrap_or_default();
    let patch = ModelPatch {
        engine: None,
        model_name: new.model_name,
        region: Some(new.region),
        status: new.status.map(Status::from),
        aliases: new.aliases,
        subagent_model: Some(new.subagent_model),
        env: env.into_iter().map(|(name, value)| (name, Some(value))).collect(),
        secret_env: new.secret_env,
        prices: new.prices.map(|Object(prices)| prices.into()).unwrap_or_default(),
    };
    let model = ModelJson::from(app.create_model(new.id, new.engine.into(), patch).await?);
    Ok(created(&format!("/v1/models/{}", model.id), &model))
}

/// Lists the models
#[utoipa::path(get, path = "/v1/models", tag = "models", params(Paging),
    responses((status = 200, description = "A page of models", body = Page<ModelJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_models(
    caller: AnyKey,
    State(web): State<Shared>,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Page<ModelJson>>, Problem> {
    let (after, limit) = paging.read()?;
    let (models, next) = web.app.list_models(after, limit).await?;
    let models: Vec<ModelJson> = models.into_iter().map(|model| caller.model(model)).collect();
    Ok(axum::Json(Page::new((models, next))))
}

/// Shows a model
#[utoipa::path(get, path = "/v1/models/{m}", tag = "models", params(("m" = String, Path)),
    responses((status = 200, description = "The model", body = ModelJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn show_model(
    caller: AnyKey,
    ModelInPath(id): ModelInPath,
    State(web): State<Shared>,
) -> Result<axum::Json<ModelJson>, Problem> {
    Ok(axum::Json(caller.model(web.app.model(&id).await?)))
}

/// Changes a model (admin)
#[utoipa::path(patch, path = "/v1/models/{m}", tag = "models", params(("m" = String, Path)),
    request_body = ModelChange,
    responses((status = 200, description = "The model", body = ModelJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn change_model(
    _: Admin,
    ModelInPath(id): ModelInPath,
    ActingApp(app): ActingApp,
    Json(change): Json<ModelChange>,
) -> Result<axum::Json<ModelJson>, Problem> {
    let patch = ModelPatch {
        engine: change.engine.map(EngineKind::from),
        model_name: change.model_name,
        region: change.region,
        status: change.status.map(Status::from),
        aliases: change.aliases,
        subagent_model: change.subagent_model,
        env: change.env,
        secret_env: change.secret_env,
        prices: change.prices.map(|Object(prices)| prices.into()).unwrap_or_default(),
    };
    Ok(axum::Json(app.update_model(&id, patch).await?.into()))
}
