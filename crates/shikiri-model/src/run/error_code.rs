//! The codes with which runs fail and executions warn. The comments are the reference page of
//! errors: what a code means, then what to do about it.

use crate::documented_enum;

documented_enum! {
    /// Why a run or an execution failed. Questions to chat pages have further codes.
    pub enum RunErrorCode {
        /// The run was cancelled.
        ///
        /// Start it again if that was not meant.
        Cancelled = "CANCELLED",
        /// The engine failed, or ended without a result. The message is the engine's own.
        ///
        /// Read the message. `shikiri doctor` checks the engines.
        SdkError = "SDK_ERROR",
        /// The turn's time was over before there was any output.
        ///
        /// Try again, or raise `execution_timeout_seconds`.
        Timeout = "TIMEOUT",
        /// The server died or stopped, and the work could not go on elsewhere.
        ///
        /// Send the turn again: the conversation is as it was before. What was spent is on the bill.
        Interrupted = "INTERRUPTED",
        /// A queued execution could not be started when its turn came. Nothing was spent.
        ///
        /// Read the message, which is that of the refused request.
        NotStarted = "NOT_STARTED",
        /// The tenant's stored data reached its limit while the run worked.
        ///
        /// Remove conversations or files, or raise `stored_bytes`.
        QuotaExceeded = "QUOTA_EXCEEDED",
        /// The agent cannot use its input.
        ///
        /// Correct the input. The message names the field.
        InvalidRequest = "INVALID_REQUEST",
        /// A step of the agent failed.
        ///
        /// Read the message, which is the step's own.
        StepFailed = "STEP_FAILED",
        /// It is not known whether a step had its effect when its server died.
        ///
        /// Look at what the step changes before you start the run again.
        UnknownOutcome = "UNKNOWN_OUTCOME",
        /// No node has this agent.
        ///
        /// Start a server of the version that has it.
        UnknownAgent = "UNKNOWN_AGENT",
        /// The stored steps do not fit the agent's code any more. The message names the step that differs.
        ///
        /// Start the run again, or run the version that began it.
        JournalMismatch = "JOURNAL_MISMATCH",
        /// A fault of the program.
        ///
        /// Look into the server's log.
        InternalError = "INTERNAL_ERROR",
    }
}

documented_enum! {
    /// What an execution warns of while it goes on.
    pub enum WarningCode {
        /// The model's API refused or did not answer; it is asked again after a pause.
        ///
        /// Wait. The message says how long, and how many attempts are left.
        ApiRetry = "API_RETRY",
        /// A server of the tenant could not be reached. The turn goes on without its tools.
        ///
        /// Check it with `shikiri servers check ID`.
        McpServerUnavailable = "MCP_SERVER_UNAVAILABLE",
        /// A tool of a server is left out: it cannot be offered as it is described.
        ///
        /// The message says why. Correct the tool at its server.
        ToolLeftOut = "TOOL_LEFT_OUT",
        /// A server describes tools in another way than before. Changed ones are withheld.
        ///
        /// Look at the difference with `shikiri servers check ID`, and accept it with `--accept-changes`.
        ToolDefinitionChanged = "TOOL_DEFINITION_CHANGED",
        /// A part of what was spent is not known, so the bill is too low.
        ///
        /// Compare it with your provider's.
        UsageIncomplete = "USAGE_INCOMPLETE",
        /// Claude Code counted fewer tokens than its requests show. The requests are billed.
        ///
        /// Compare the bill with your provider's.
        UsageDiffers = "USAGE_DIFFERS",
        /// No model record has prices for a model that was used, so its tokens cost nothing here.
        ///
        /// Give its record prices: `shikiri models set`.
        PriceUnknown = "PRICE_UNKNOWN",
    }
}
