//! The suite's resources.

use async_trait::async_trait;
use serde_json::{Value, json};
use shikiri_mcp::model::{Resource, ResourceTemplate};
use shikiri_mcp::{CataloguePage, McpCaller, ResourceSource, RpcError};

use super::content::PNG;

pub(super) struct Resources;

#[async_trait]
impl ResourceSource for Resources {
    async fn list(
        &self,
        _: &McpCaller,
        _: Option<&str>,
    ) -> Result<CataloguePage<Resource>, RpcError> {
        let listed =
            |uri: &str, name: &str, kind: &str| Resource::new(uri, name).with_mime_type(kind);
        let items = vec![
            listed("test://static-text", "static-text", "text/plain"),
            listed("test://static-binary", "static-binary", "image/png"),
            listed("test://watched-resource", "watched-resource", "text/plain"),
        ];
        Ok(CataloguePage { items, next: None })
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        let template = ResourceTemplate::new("test://template/{id}/data", "template");
        vec![template.with_mime_type("application/json")]
    }

    async fn read(&self, _: &McpCaller, uri: &str) -> Option<Result<Vec<Value>, RpcError>> {
        let text = |kind: &str, text: String| json!({ "uri": uri, "mimeType": kind, "text": text });
        let content = match uri {
            "test://static-text" => {
                text("text/plain", "This is the content of the static text resource.".to_owned())
            }
            "test://static-binary" => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
            "test://watched-resource" => text("text/plain", "Nothing has changed.".to_owned()),
            _ => {
                let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
                let data = format!("Data for ID: {id}");
                let data = json!({ "id": id, "templateTest": true, "data": data });
                text("application/json", data.to_string())
            }
        };
        Some(Ok(vec![content]))
    }
}
