//! Which servers offer the tools that a plan needs.

use shikiri_client::ClientError;
use shikiri_model::host::plan::{HostPlan, ToolOffers};

use super::{ChangedTool, Host, HostError};

/// The tool lists of all servers.
#[derive(Default)]
pub struct ServerSurvey {
    /// The servers that offer each tool now.
    pub offers: ToolOffers,
    /// The errors of servers that could not list their tools.
    pub troubles: Vec<(String, ClientError)>,
    /// Tools whose definition changed.
    pub changed: Vec<ChangedTool>,
}

impl Host {
    pub async fn survey(&self) -> ServerSurvey {
        let ServerSurvey { mut offers, mut troubles, mut changed } = ServerSurvey::default();
        for listed in self.list().await {
            changed.extend(listed.changed_tools());
            match listed.offer {
                Ok((_, offer)) => {
                    for tool in offer.tools {
                        let servers = offers.tools.entry(tool.name).or_default();
                        servers.push(listed.server.clone());
                    }
                }
                Err(error) => {
                    // Connect again next time: the session may have failed.
                    self.disconnect(&listed.server).await;
                    offers.silent.insert(listed.server.clone());
                    troubles.push((listed.server, error));
                }
            }
        }
        ServerSurvey { offers, troubles, changed }
    }

    /// Checks that the plan's servers and tools exist. An unreachable server may offer a tool
    /// later.
    pub fn check_plan(&self, plan: &HostPlan, offers: &ToolOffers) -> Result<(), HostError> {
        for task in &plan.tasks {
            for name in &task.servers.0 {
                self.spec(name).map_err(|error| {
                    HostError::Plan(format!("task {}: {error}: correct its `server`", task.id))
                })?;
            }
            let offering = offers.tools.get(&task.tool);
            let offers_it = |name: &String| {
                offering.is_some_and(|all| all.contains(name)) || offers.silent.contains(name)
            };
            let is_offered = match task.servers.is_empty() {
                true => offering.is_some() || !offers.silent.is_empty(),
                false => task.servers.0.iter().any(offers_it),
            };
            if !is_offered {
                let who = match task.servers.is_empty() {
                    true => "no server".to_owned(),
                    false => format!("not {}", task.servers.0.join(" or ")),
                };
                return Err(HostError::Plan(format!(
                    "task {}: {who} offers a tool {:?}: `shikiri host tools` lists what there is",
                    task.id, task.tool
                )));
            }
        }
        Ok(())
    }
}
