//! A store with the sample agents, a worker that carries their runs, and the MCP server.

use std::sync::Arc;

use axum::Router;
use shikiri_agents::samples;
use shikiri_app::{App, AppOptions};
use shikiri_mcp::{McpExtras, McpOptions, McpService, router};
use shikiri_model::ids::{ProjectId, TenantId};
use shikiri_model::key::SecretToken;
use shikiri_model::team::{AgentKind, AgentRank, SpawnPolicy};
use shikiri_runtime::run::WorkerNode;
use shikiri_store::SystemClock;
use shikiri_store::sqlite::{SqliteDurability, SqliteOptions, SqliteStore};
use shikiri_teams::NewTeamAgent;
use shikiri_tenancy::gate::{AccessGate, GateOptions};

pub(crate) const PROJECT: &str = "bridge";
pub(crate) const PASSKEY: &str = "open the gate";

pub(crate) struct World {
    pub(crate) app: App,
    pub(crate) mcp: Arc<McpService>,
    pub(crate) router: Router,
    /// The admin's.
    pub(crate) key: String,
    _worker: WorkerNode,
    _folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_options(McpOptions::default()).await
    }

    pub(crate) async fn with_options(mcp_options: McpOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options =
            SqliteOptions { clock: Arc::new(SystemClock), durability: SqliteDurability::Normal };
        let store = SqliteStore::open(&folder.path().join("state.db"), options).unwrap();
        let app = App::new(Arc::new(store), samples(), AppOptions::default());
        app.tenancy.ensure_local_tenant().await.unwrap();
        let secret = shikiri_tenancy::Tenancy::mint_secret().unwrap();
        app.tenancy.ensure_admin_key(&secret).await.unwrap();
        let mcp = McpService::new(app.clone(), McpExtras::default(), mcp_options);
        let gate = AccessGate::new(app.tenancy.clone(), GateOptions::default());
        Self {
            router: router(Arc::clone(&mcp), gate),
            mcp,
            key: secret.reveal().to_owned(),
            _worker: app.start_worker(),
            app,
            _folder: folder,
        }
    }

    /// A project with the agents `ann` and `bo`.
    pub(crate) async fn with_team() -> Self {
        let world = Self::new().await;
        let (tenant, project) = (TenantId::local(), PROJECT.parse::<ProjectId>().unwrap());
        world.app.teams.create_project(&tenant, Some(project.clone()), None).await.unwrap();
        for id in ["ann", "bo"] {
            let new = NewTeamAgent {
                id: id.parse().unwrap(),
                name: None,
                kind: AgentKind::Ai,
                rank: AgentRank::Worker,
                role: None,
                passkey: Some(SecretToken::from_caller(PASSKEY)),
                model_id: None,
                spawn: SpawnPolicy::Never,
            };
            world.app.teams.add_agent(&tenant, &project, new).await.unwrap();
        }
        world
    }
}
