//! `shikiri models create|list|show|set`.

use clap::{Args, Subcommand};
use shikiri_app::App;
use shikiri_model::execution::{PRICES_AS_OF, TokenPrice, built_in_prices};
use shikiri_model::ids::ModelId;
use shikiri_model::models::{ActiveStatus, EngineKind, Model};
use shikiri_model::record::StoredDocument;
use shikiri_tenancy::models::{ModelPatch, PricesPatch};
use shikiri_web::views::ModelJson;

use super::JsonArgument;
use super::id_argument::IdArgument;
use super::parts::{all_pages, emptied, none_yet, or_none, pair, print_page, print_record, word};
use crate::exit::Failure;
use crate::output::Output;
use crate::table::TableColumn;
use crate::text::{one_line, short};
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Make a model
    Create {
        /// Its id [default: a fresh one]
        id: Option<ModelId>,
        /// What runs it
        #[arg(long, value_parser = word::<EngineKind>())]
        engine: EngineKind,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show all models
    List {
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show one model; values of its environment are hidden
    Show {
        /// Its id, a unique ending of it, or @last for the newest
        id: IdArgument<ModelId>,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Change a model; what is not named stays
    Set {
        /// Its id, a unique ending of it, or @last for the newest
        id: IdArgument<ModelId>,
        /// What runs it
        #[arg(long, value_parser = word::<EngineKind>())]
        engine: Option<EngineKind>,
        #[command(flatten)]
        change: Change,
        /// Take a variable away; can be given several times
        #[arg(long, value_name = "NAME")]
        unset_env: Vec<String>,
        #[command(flatten)]
        json: JsonArgument,
    },
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::List { .. } | Self::Show { .. } => Access::Read,
            Self::Create { .. } | Self::Set { .. } => Access::Write,
        }
    }
}

#[derive(Args)]
pub(super) struct Change {
    /// As the provider calls it [default: the id]
    #[arg(long, value_name = "NAME")]
    model_name: Option<String>,
    /// Of the provider; empty for none
    #[arg(long)]
    region: Option<String>,
    /// An inactive model is not used
    #[arg(long, value_parser = word::<ActiveStatus>())]
    status: Option<ActiveStatus>,
    /// A short name that stands for it, such as haiku; can be given several times, empty for none
    #[arg(long = "alias", value_name = "NAME")]
    aliases: Vec<String>,
    /// What subagents use that ask for nothing: an alias or a model's name; empty for none
    #[arg(long, value_name = "NAME")]
    subagent_model: Option<String>,
    /// A variable for the engine, with its value or with the value it has here; can be given
    /// several times
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = pair)]
    env: Vec<(String, String)>,
    /// A variable that stays out of runs, as those do that end in KEY, TOKEN, SECRET or PASSWORD;
    /// can be given several times, empty for none
    #[arg(long = "secret-env", value_name = "NAME")]
    secret_env: Vec<String>,
    #[command(flatten)]
    prices: Prices,
}

#[derive(Args)]
#[command(next_help_heading = "Prices in dollars per million tokens")]
struct Prices {
    /// Input tokens that are not cached
    #[arg(long, value_name = "DOLLARS", value_parser = price)]
    price_input: Option<TokenPrice>,
    /// Output tokens
    #[arg(long, value_name = "DOLLARS", value_parser = price)]
    price_output: Option<TokenPrice>,
    /// Input tokens written to the cache for five minutes
    #[arg(long, value_name = "DOLLARS", value_parser = price)]
    price_cache_write_5m: Option<TokenPrice>,
    /// Input tokens written to the cache for an hour
    #[arg(long, value_name = "DOLLARS", value_parser = price)]
    price_cache_write_1h: Option<TokenPrice>,
    /// Input tokens read from the cache
    #[arg(long, value_name = "DOLLARS", value_parser = price)]
    price_cache_read: Option<TokenPrice>,
}

fn price(text: &str) -> Result<TokenPrice, String> {
    let wrong = |_| "a price is a number of dollars from 0 to 1,000,000, such as 0.25".to_owned();
    serde_json::from_str(text).map_err(wrong)
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::Create { id, engine, change, json } => {
            show(app.tenancy.create_model(id, engine, change.into()).await?, json)
        }
        Command::List { json } => list(app, json).await,
        Command::Show { id, json } => {
            let id = id.resolve_shared(app).await?;
            show(app.tenancy.model(&id).await?, json)
        }
        Command::Set { id, engine, change, unset_env, json } => {
            let id = id.resolve_shared(app).await?;
            let mut patch = ModelPatch::from(change);
            patch.engine = engine;
            patch.env.extend(unset_env.into_iter().map(|name| (name, None)));
            show(app.tenancy.update_model(&id, patch).await?, json)
        }
    }
}

impl From<Change> for ModelPatch {
    fn from(change: Change) -> Self {
        let given = !change.aliases.is_empty();
        let aliases = change.aliases.into_iter().filter(|alias| !alias.is_empty()).collect();
        let names_secrets = !change.secret_env.is_empty();
        let secret_env = change.secret_env.into_iter().filter(|name| !name.is_empty()).collect();
        let prices = change.prices;
        Self {
            engine: None,
            model_name: change.model_name,
            region: emptied(change.region),
            status: change.status,
            aliases: given.then_some(aliases),
            subagent_model: emptied(change.subagent_model),
            env: change.env.into_iter().map(|(name, value)| (name, Some(value))).collect(),
            secret_env: names_secrets.then_some(secret_env),
            prices: PricesPatch {
                input: prices.price_input,
                output: prices.price_output,
                cache_write_5m: prices.price_cache_write_5m,
                cache_write_1h: prices.price_cache_write_1h,
                cache_read: prices.price_cache_read,
            },
        }
    }
}

async fn list(app: &App, json: JsonArgument) -> Result<(), Failure> {
    let models = all_pages(async |after| app.tenancy.list_models(after, 100).await).await?;
    let row = |stored: &StoredDocument<Model>| {
        let model = &stored.value;
        vec![
            model.id.to_string(),
            model.engine.as_str().to_owned(),
            model.status.as_str().to_owned(),
            short(&model.aliases.join(" "), 40),
            short(&model.model_name, 60),
        ]
    };
    let columns = [
        TableColumn::id("id"),
        TableColumn::text("engine"),
        TableColumn::state("status"),
        TableColumn::text("aliases").minor(),
        TableColumn::text("model name"),
    ];
    print_page::<ModelJson, _>(
        (models, None),
        json,
        &columns,
        &none_yet("models", false, "models create sonnet --engine claude-code"),
        row,
    )
}

fn show(stored: StoredDocument<Model>, json: JsonArgument) -> Result<(), Failure> {
    print_record::<ModelJson, _>(stored, json, |stored| {
        let model = &stored.value;
        let built_in = built_in_prices(&model.model_name).filter(|_| model.prices.is_unset());
        let prices = built_in.unwrap_or(&model.prices);
        let dollars = |price: TokenPrice| {
            let text = serde_json::to_string(&price).unwrap_or_default();
            let number = text.strip_suffix(".0").unwrap_or(&text);
            match built_in {
                Some(_) => format!("{number} (built in, as of {PRICES_AS_OF})"),
                None => number.to_owned(),
            }
        };
        let env: Vec<&str> = model.env.keys().map(String::as_str).collect();
        vec![
            ("model", model.id.to_string()),
            ("engine", model.engine.as_str().to_owned()),
            ("model name", one_line(&model.model_name)),
            ("region", or_none(model.region.as_deref())),
            ("status", Output::stdout().state(model.status.as_str())),
            ("aliases", one_line(&model.aliases.join(" "))),
            ("subagent model", or_none(model.subagent_model.as_deref())),
            ("environment", env.join(" ")),
            ("kept out of runs", model.secret_env.join(" ")),
            ("$/M input", dollars(prices.input)),
            ("$/M output", dollars(prices.output)),
            ("$/M cache write 5m", dollars(prices.cache_write_5m)),
            ("$/M cache write 1h", dollars(prices.cache_write_1h)),
            ("$/M cache read", dollars(prices.cache_read)),
            ("created", Output::stdout().time(stored.created_at)),
        ]
    })
}
