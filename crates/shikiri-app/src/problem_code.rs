//! The codes of failures: the contract with the outside.

use hyper::StatusCode;
use shikiri_model::documented_enum;

documented_enum! {
    /// The code of a failure. The comments are the reference page of errors: what it means, then what to do.
    pub enum ProblemCode {
        /// The request is wrong. `field` says where, if it is a field.
        ///
        /// Correct it. `detail` says what is expected.
        InvalidRequest = "INVALID_REQUEST",
        /// There is no key, or it is not valid: unknown, revoked or ended.
        ///
        /// Send `Authorization: Bearer KEY`. `shikiri keys create` makes one.
        Unauthorized = "UNAUTHORIZED",
        /// The key is valid and may not do that.
        ///
        /// Use the admin key, or one that may.
        Forbidden = "FORBIDDEN",
        /// The tenant is inactive.
        ///
        /// `shikiri tenants set ID --status active`, if it is meant to work.
        TenantInactive = "TENANT_INACTIVE",
        /// The model is inactive.
        ///
        /// Name another model, or `shikiri models set ID --status active`.
        ModelInactive = "MODEL_INACTIVE",
        /// The server was called by a name that it does not know.
        ///
        /// Allow the name: `shikiri serve --allow-host NAME`.
        HostNotAllowed = "HOST_NOT_ALLOWED",
        /// The request comes from a web page of another origin.
        ///
        /// Call the server from your own server. A page of an allowed host may call it as well.
        OriginNotAllowed = "ORIGIN_NOT_ALLOWED",
        /// There is nothing here: no such route, or no such record of the caller's.
        ///
        /// Look at `/docs`, or list the records.
        NotFound = "NOT_FOUND",
        /// There is no such tenant, or the key belongs to another one.
        ///
        /// Check the tenant in the path, and whose key it is.
        TenantNotFound = "TENANT_NOT_FOUND",
        /// The tenant has no such run.
        ///
        /// `shikiri runs list`
        RunNotFound = "RUN_NOT_FOUND",
        /// The tenant has no such key.
        ///
        /// `shikiri keys list`
        KeyNotFound = "KEY_NOT_FOUND",
        /// The run has no such open question: it was answered, is over, or never was.
        ///
        /// Read the run: `questions` are the open ones.
        QuestionNotFound = "QUESTION_NOT_FOUND",
        /// There is no such model.
        ///
        /// `shikiri models list`
        ModelNotFound = "MODEL_NOT_FOUND",
        /// The tenant has no such conversation or dialogue.
        ///
        /// `shikiri conversations list`, `shikiri dialogues list`
        ConversationNotFound = "CONVERSATION_NOT_FOUND",
        /// The tenant has no such execution.
        ///
        /// `shikiri executions list`
        ExecutionNotFound = "EXECUTION_NOT_FOUND",
        /// A preferred skill is not the tenant's.
        ///
        /// `shikiri skills list`
        SkillNotFound = "SKILL_NOT_FOUND",
        /// The tenant has no such project.
        ///
        /// `shikiri projects list`
        ProjectNotFound = "PROJECT_NOT_FOUND",
        /// There is no such agent.
        ///
        /// `shikiri agents list`
        AgentNotFound = "AGENT_NOT_FOUND",
        /// The project has no such task.
        ///
        /// `shikiri tasks list`
        TaskNotFound = "TASK_NOT_FOUND",
        /// The project has no such delegation.
        ///
        /// `shikiri delegations list`
        DelegationNotFound = "DELEGATION_NOT_FOUND",
        /// The agent is not in the project.
        ///
        /// Add it: `shikiri agents add`.
        AgentNotInProject = "TARGET_AGENT_NOT_IN_PROJECT",
        /// Sender and receiver are the same agent.
        ///
        /// Name another one.
        WithSelf = "CANNOT_CONVERSATION_WITH_SELF",
        /// The text is too long.
        ///
        /// Shorten it. `detail` names the limit.
        ContentTooLong = "CONTENT_TOO_LONG",
        /// The two agents have a conversation already.
        ///
        /// Wait for its end, or `shikiri dialogues cancel`.
        ConversationActive = "CONVERSATION_ALREADY_ACTIVE",
        /// The idempotency key belongs to an earlier request that asked for something else.
        ///
        /// Use a new key for a new request. `tokens` are not compared.
        IdempotencyConflict = "IDEMPOTENCY_CONFLICT",
        /// A header of a server has a `${name}` for which the request brought no token.
        ///
        /// Add it to `tokens`.
        MissingToken = "MISSING_TOKEN",
        /// Another turn of the conversation is under way: `execution_id`.
        ///
        /// Wait as long as `Retry-After` says, follow that execution, or cancel it.
        ConversationLocked = "CONVERSATION_LOCKED",
        /// The engine's program or key is missing here.
        ///
        /// `shikiri doctor` says what is missing.
        EngineUnavailable = "ENGINE_UNAVAILABLE",
        /// Claude Code cannot be confined here as this tenant needs it.
        ///
        /// `shikiri doctor` tells the level that was reached; see [the sandbox](../guides/operating.md#the-sandbox).
        SandboxUnavailable = "SANDBOX_UNAVAILABLE",
        /// The route has no such method.
        ///
        /// Look at `/docs`.
        MethodNotAllowed = "METHOD_NOT_ALLOWED",
        /// The body did not arrive in time.
        ///
        /// Send it again.
        RequestTimeout = "REQUEST_TIMEOUT",
        /// Not possible as things are now: it exists already, or its state does not allow it.
        ///
        /// Read the record again, then decide.
        Conflict = "CONFLICT",
        /// The body is too large.
        ///
        /// Send less. `detail` names the limit.
        PayloadTooLarge = "PAYLOAD_TOO_LARGE",
        /// The body is of a kind that is not read here.
        ///
        /// Send `Content-Type: application/json`.
        UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE",
        /// Too much at once: a limit of the tenant or of the server.
        ///
        /// Wait as long as `Retry-After` says. `shikiri tenants show ID` tells the limits.
        LimitExceeded = "LIMIT_EXCEEDED",
        /// The tenant's stored data has reached its limit. Reading and removing still work.
        ///
        /// Remove conversations or files, or raise it: `shikiri tenants set ID --stored-bytes N`.
        QuotaExceeded = "QUOTA_EXCEEDED",
        /// A fault of the server.
        ///
        /// Look into its log for the `error_id`.
        InternalError = "INTERNAL_ERROR",
        /// Not possible for the moment, such as when the database is away or the disk is full.
        ///
        /// Try again. If `detail` says that the outcome is unknown, look before you do.
        Unavailable = "UNAVAILABLE",
    }
}

impl ProblemCode {
    /// Status, code and title: the contract with the outside, on one screen.
    pub fn row(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        let (status, title) = match self {
            Self::InvalidRequest => (S::BAD_REQUEST, "Invalid request"),
            Self::Unauthorized => (S::UNAUTHORIZED, "A valid key is needed"),
            Self::Forbidden => (S::FORBIDDEN, "This key may not do that"),
            Self::TenantInactive => (S::FORBIDDEN, "The tenant is inactive"),
            Self::ModelInactive => (S::FORBIDDEN, "The model is inactive"),
            Self::HostNotAllowed => (S::FORBIDDEN, "Host not allowed"),
            Self::OriginNotAllowed => (S::FORBIDDEN, "Origin not allowed"),
            Self::NotFound => (S::NOT_FOUND, "Not found"),
            Self::TenantNotFound => (S::NOT_FOUND, "No such tenant"),
            Self::RunNotFound => (S::NOT_FOUND, "No such run"),
            Self::KeyNotFound => (S::NOT_FOUND, "No such key"),
            Self::QuestionNotFound => (S::NOT_FOUND, "No such open question"),
            Self::ModelNotFound => (S::NOT_FOUND, "No such model"),
            Self::ConversationNotFound => (S::NOT_FOUND, "No such conversation"),
            Self::ExecutionNotFound => (S::NOT_FOUND, "No such execution"),
            Self::SkillNotFound => (S::BAD_REQUEST, "No such skill"),
            Self::ProjectNotFound => (S::NOT_FOUND, "No such project"),
            Self::AgentNotFound => (S::NOT_FOUND, "No such agent"),
            Self::TaskNotFound => (S::NOT_FOUND, "No such task"),
            Self::DelegationNotFound => (S::NOT_FOUND, "No such delegation"),
            Self::AgentNotInProject => (S::FORBIDDEN, "The agent is not in the project"),
            Self::WithSelf => (S::BAD_REQUEST, "Nobody talks to itself"),
            Self::ContentTooLong => (S::BAD_REQUEST, "The text is too long"),
            Self::ConversationActive => (S::CONFLICT, "The two have a conversation"),
            Self::IdempotencyConflict => {
                (S::UNPROCESSABLE_ENTITY, "The key belongs to another request")
            }
            Self::MissingToken => (S::BAD_REQUEST, "A token is missing"),
            Self::ConversationLocked => (S::CONFLICT, "The conversation is busy"),
            Self::EngineUnavailable => (S::SERVICE_UNAVAILABLE, "The engine cannot run here"),
            Self::SandboxUnavailable => {
                (S::SERVICE_UNAVAILABLE, "The engine cannot be confined here")
            }
            Self::MethodNotAllowed => (S::METHOD_NOT_ALLOWED, "Method not allowed"),
            Self::RequestTimeout => (S::REQUEST_TIMEOUT, "Request too slow"),
            Self::Conflict => (S::CONFLICT, "Not possible now"),
            Self::PayloadTooLarge => (S::PAYLOAD_TOO_LARGE, "Body too large"),
            Self::UnsupportedMediaType => (S::UNSUPPORTED_MEDIA_TYPE, "Unsupported media type"),
            Self::LimitExceeded => (S::TOO_MANY_REQUESTS, "Limit exceeded"),
            Self::QuotaExceeded => (S::INSUFFICIENT_STORAGE, "The tenant's quota is used up"),
            Self::InternalError => (S::INTERNAL_SERVER_ERROR, "Internal error"),
            Self::Unavailable => (S::SERVICE_UNAVAILABLE, "Unavailable"),
        };
        (status, self.as_str(), title)
    }
}
