//! Which servers offer what a plan wants.

use shikiri_client::ClientError;
use shikiri_model::host::plan::{Offers, Plan};

use super::{ChangedTool, Host, HostError};

/// What all servers said when they were asked what they offer.
#[derive(Default)]
pub struct Survey {
    /// Who offers which tools now.
    pub offers: Offers,
    /// What was said by those who could not be asked.
    pub troubles: Vec<(String, ClientError)>,
    /// Tools that are not what they were.
    pub changed: Vec<ChangedTool>,
}

impl Host {
    pub async fn survey(&self) -> Survey {
        let Survey { mut offers, mut troubles, mut changed } = Survey::default();
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
                    // Next time it is met anew: its session may be what failed.
                    self.disconnect(&listed.server).await;
                    offers.silent.insert(listed.server.clone());
                    troubles.push((listed.server, error));
                }
            }
        }
        Survey { offers, troubles, changed }
    }

    /// Whether a plan names what there is. A server that is silent now may offer it later.
    pub fn check_plan(&self, plan: &Plan, offers: &Offers) -> Result<(), HostError> {
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
