//! JSON-RPC errors: the codes of the specification, and why.

use axum::http::StatusCode;
use rmcp::model::ErrorCode;
use serde_json::{Map, Value, json};
use shikiri_app::problem::Problem;
use shikiri_runtime::AppError;

/// The codes that are used, for the reference page of errors.
pub const RPC_ERRORS: [(ErrorCode, &str); 8] = [
    (ErrorCode::PARSE_ERROR, "the message is no JSON, or names a field twice"),
    (ErrorCode::INVALID_REQUEST, "the message is no request, or cannot be done as things are"),
    (ErrorCode::METHOD_NOT_FOUND, "there is no such method"),
    (ErrorCode::INVALID_PARAMS, "a parameter is missing or wrong, or names what is not there"),
    (ErrorCode::INTERNAL_ERROR, "a fault of the server; `error_id` is in its log"),
    (ErrorCode::HEADER_MISMATCH, "a header does not say what the body says"),
    (
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
        "the revision is not spoken here; `supported` lists those that are",
    ),
    (
        ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY,
        "the client has not declared what this needs: `requiredCapabilities`",
    ),
];

/// An error that answers a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    pub code: i32,
    pub message: String,
    pub data: Option<Value>,
}

impl RpcError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: code.0, message: message.into(), data: None }
    }

    pub fn parse(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::PARSE_ERROR, message)
    }

    pub fn request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_REQUEST, message)
    }

    pub fn params(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_PARAMS, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INTERNAL_ERROR, message)
    }

    pub fn header(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::HEADER_MISMATCH, message)
    }

    pub fn method(method: &str) -> Self {
        Self::new(ErrorCode::METHOD_NOT_FOUND, format!("there is no method {method:?}"))
    }

    pub fn version(requested: &str, supported: &[&str]) -> Self {
        let message = format!("protocol version {requested:?} is not spoken here");
        Self::new(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, message)
            .with(json!({ "supported": supported, "requested": requested }))
    }

    /// A handshake in a revision before all that are spoken here.
    pub fn too_old(requested: &str, supported: &[&str]) -> Self {
        let oldest = supported.last().copied().unwrap_or_default();
        let message = format!(
            "protocol version {requested} is too old: the oldest that is spoken here is {oldest}. \
             Update the client"
        );
        Self::params(message).with(json!({ "supported": supported, "requested": requested }))
    }

    pub fn capability(missing: &Value) -> Self {
        let code = ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY;
        Self::new(code, "the client has not declared a capability that this needs")
            .with(json!({ "requiredCapabilities": missing }))
    }

    #[must_use]
    pub fn with(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    pub(crate) fn to_json(&self) -> Value {
        match &self.data {
            Some(data) => json!({ "code": self.code, "message": self.message, "data": data }),
            None => json!({ "code": self.code, "message": self.message }),
        }
    }

    /// The HTTP status that the newer era gives it; the older one always says 200.
    pub fn status(&self) -> StatusCode {
        match ErrorCode(self.code) {
            ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
            | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
            | ErrorCode::HEADER_MISMATCH
            | ErrorCode::PARSE_ERROR
            | ErrorCode::INVALID_REQUEST => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        }
    }
}

impl From<AppError> for RpcError {
    /// With the words that REST has for it.
    fn from(error: AppError) -> Self {
        let code = match &error {
            AppError::NotFound { .. }
            | AppError::Invalid { .. }
            | AppError::Exists { .. }
            | AppError::KeyReused { .. }
            | AppError::MissingToken(_)
            | AppError::NoSuchSkill(_) => ErrorCode::INVALID_PARAMS,
            AppError::Unknown(_) | AppError::Unavailable(_) | AppError::Broken(_) => {
                ErrorCode::INTERNAL_ERROR
            }
            _ => ErrorCode::INVALID_REQUEST,
        };
        let problem = Problem::from(error);
        let mut data = Map::new();
        if let Some(wait) = problem.retry_after_ms() {
            data.insert("retry_after_ms".to_owned(), json!(wait));
        }
        if let Some(id) = &problem.error_id {
            data.insert("error_id".to_owned(), json!(id));
        }
        let data = (!data.is_empty()).then_some(Value::Object(data));
        Self { data, ..Self::new(code, problem.detail) }
    }
}
