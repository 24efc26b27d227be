//! The names of a run's events, of an execution's and of a dialogue's: what readers of streams see.
//! The comments are the reference page of events, so they are written for users.

use crate::documented_enum;

documented_enum! {
    /// Events of the runs of agents. An execution has [`ExecutionEventName`]s instead.
    pub enum RunEventName {
        /// The run is in the queue.
        ///
        /// `agent`, `parent_run_id`, `origin?`
        Queued = "queued",
        /// A node has taken the run up, for the first time or again.
        ///
        /// `attempt`
        Started = "started",
        /// A step begins. Its number of attempts rises if its outcome is not known.
        ///
        /// `index`, `name`, `attempt`
        StepStarted = "step_started",
        /// A step is done and will not be run again.
        ///
        /// `index`, `name`, `result`
        StepCompleted = "step_completed",
        /// A step has failed. Its agent decides what follows.
        ///
        /// `index`, `name`, `error`
        StepFailed = "step_failed",
        /// How far the run is.
        ///
        /// `progress`, `total`, `message`, `index?`
        Progress = "progress",
        /// A line of the agent's log.
        ///
        /// `index`, `level`, `logger`, `message`
        Log = "log",
        /// A partial result.
        ///
        /// `index`, `data`
        Partial = "partial",
        /// The agent asks a person, a model, or the client for its folders. `kind` says which.
        ///
        /// `index`, `question_id`, `kind`, `message`, `schema`, `expires_at`, `name?`
        Question = "question",
        /// A question was answered, or its time is over: `action` is `accept`, `decline`, `cancel` or `timeout`.
        ///
        /// `index`, `question_id`, `action`, `content`, `reason?`
        Answer = "answer",
        /// The run was given new input.
        ///
        /// `number`, `input`
        Input = "input",
        /// The agent has read new input.
        ///
        /// `index`, `from`, `inputs`
        InputsTaken = "inputs_taken",
        /// The agent has called another agent, whose work is a run of its own.
        ///
        /// `index`, `agent`, `child_run_id`
        ChildStarted = "child_started",
        /// A called run has ended.
        ///
        /// `index`, `child_run_id`, `status`, `result`, `error`
        ChildEnded = "child_ended",
        /// The agent waits until a time.
        ///
        /// `index`, `until`
        TimerSet = "timer_set",
        /// That time has come.
        ///
        /// `index`
        TimerFired = "timer_fired",
        /// No node holds the run until an answer, a time or a child's end comes.
        ///
        /// `until`
        Waiting = "waiting",
        /// Callers that can come back need not stay connected.
        ///
        /// `index`
        CallersReleased = "callers_released",
        /// The run was asked to stop.
        ///
        /// –
        CancelRequested = "cancel_requested",
        /// The node that worked on the run is gone. Another one takes it up.
        ///
        /// –
        NodeLost = "node_lost",
        /// The run has completed. The last event.
        ///
        /// `result`
        Result = "result",
        /// The run has failed or was cancelled. The last event.
        ///
        /// `code`, `message`
        Error = "error",
    }
}

documented_enum! {
    /// Events of an execution: one turn of a conversation.
    pub enum ExecutionEventName {
        /// The engine has begun the turn.
        ///
        /// `session_id`, `model`, `resumed`, `turn`
        SessionStart = "session_start",
        /// A piece of the answer. All pieces without `parent_tool_use_id` together are the answer.
        ///
        /// `text`, `parent_tool_use_id?`
        TextDelta = "text_delta",
        /// A thought of the model.
        ///
        /// `text`, `parent_tool_use_id?`
        Thinking = "thinking",
        /// The model calls a tool.
        ///
        /// `tool_use_id`, `tool_name`, `tool_input`, `parent_tool_use_id?`
        ToolUse = "tool_use",
        /// What a tool answered.
        ///
        /// `tool_use_id`, `content`, `is_error`, `parent_tool_use_id?`
        ToolResult = "tool_result",
        /// A subagent begins. Several may work at once.
        ///
        /// `tool_use_id`, `subagent_type`, `model`, `agent_id?`
        SubagentStart = "subagent_start",
        /// A subagent has ended, with what it used.
        ///
        /// `tool_use_id`, `subagent_type`, `model`, `agent_id?`, `is_error`, `usage`, `cost_usd`
        SubagentEnd = "subagent_end",
        /// The conversation has got a title: once, after its first completed turn.
        ///
        /// `title`
        Title = "title",
        /// Something is not as it should be, and the turn goes on.
        ///
        /// `code`, `message`, `server?`, `tools?`, `model?`
        Warning = "warning",
        /// The turn has ended with a result. The last event. With `partial` the time was over; `limit` names a limit that was reached.
        ///
        /// `result`, `is_error`, `errors`, `usage`, `total_cost_usd`, `num_turns`, `duration_ms`, `session_id`, `partial`, `limit?`
        Result = "result",
        /// The turn has ended without a result. The last event.
        ///
        /// `code`, `message`
        Error = "error",
    }
}

documented_enum! {
    /// Events of a dialogue between two agents of a team.
    pub enum DialogueEventName {
        /// One of the two has spoken. The first message invites the other one.
        ///
        /// `message_id`, `from_agent_id`, `content`, `created_at`
        Message = "message",
        /// The talk is over. The last event.
        ///
        /// `reason`, `note`
        ConversationEnded = "conversation_ended",
    }
}
