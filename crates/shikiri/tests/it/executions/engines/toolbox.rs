//! The tenant's whole toolbox in one turn: an MCP server with its token, an API, files of the
//! workspace, a skill, and subagents that use them.

use reqwest::Method;

use super::super::tool_servers::{ALL_PAGES, Docs, Pets, record};
use super::*;

each_engine! {
    a_turn_uses_the_tenants_servers_files_and_skills;
    an_answer_that_is_too_long_or_a_server_that_fails_does_not_end_the_turn;
}

/// What the tenant has: `docs` over MCP, of which only `read` is allowed, the same as `old` over the
/// older transport, and the API `pets`, each with a token; one that is away, and one that is switched
/// off; a skill, and a file.
struct Toolbox {
    docs: Docs,
    pets: Pets,
}

impl Toolbox {
    async fn set_up(world: &World) -> Self {
        let (docs, pets) = (Docs::default(), Pets::default());
        let (docs_url, pets_url) = (docs.start().await, pets.start().await);
        let tenant = &world.talk.tenant;
        let mcp = |name: &str, kind: &str, url: &str| {
            let place = if kind == "sse" { "sse" } else { "mcp" };
            json!({ "name": name, "type": kind, "url": format!("{url}/{place}"),
                "allow_private": true,
                "headers_template": { "Authorization": "Bearer ${docs}" } })
        };
        let mut of_docs = mcp("docs", "http", &docs_url);
        of_docs["allowed_tools"] = json!(["read"]);
        let mut off = mcp("off", "http", &docs_url);
        off["status"] = json!("inactive");
        let (old, away) = (mcp("old", "sse", &docs_url), mcp("away", "http", "http://127.0.0.1:1"));
        for server in [of_docs, old, off, away, record(&pets_url)] {
            world.app.client().post(&tenant.path("/mcp-servers"), &server).await.expect(201);
        }
        let skill = json!({ "name": "folding", "description": "鶴を折る", "content": "山折り。",
            "files": { "steps/two.md": "谷折り。" } });
        tenant.client.post(&tenant.path("/skills"), &skill).await.expect(201);
        let enabled = json!({ "workspace_enabled": true });
        tenant.client.patch(&world.talk.path(""), &enabled).await.expect(200);
        let file = tenant.client.request(Method::PUT, &world.talk.path("/files/in/紙.txt"));
        let put = tenant.client.send(file.body("千代紙")).await;
        assert!(put.status < 300, "{}", put.text());
        Self { docs, pets }
    }
}

/// How a model of this engine reads a file, writes one, and asks for the skill.
fn files_and_skill(world: &World) -> [Reply; 3] {
    match world.which.is_native() {
        true => [
            Reply::call("Read", json!({ "path": "in/紙.txt" })),
            Reply::call("Write", json!({ "path": "out/鶴.txt", "content": "鶴\n" })),
            Reply::call("Skill", json!({ "name": "folding" })),
        ],
        false => [
            Reply::call("Bash", json!({ "command": "cat in/紙.txt" })),
            Reply::call("Bash", json!({ "command": "mkdir -p out; echo 鶴 > out/鶴.txt" })),
            Reply::call("Skill", json!({ "skill": "shikiri:folding" })),
        ],
    }
}

async fn a_turn_uses_the_tenants_servers_files_and_skills(which: TestEngine) {
    let world = World::start(which).await;
    let toolbox = Toolbox::set_up(&world).await;
    let pet = json!({ "name": "ポチ", "photoUrls": [], "status": "sold" });
    // Two subagents side by side; the second has one of its own, which calls the API.
    let both = world.spawns(world.spawn("資料を読め"), "犬を頼め");
    let read = |page: &str| Reply::call("mcp__docs__read", json!({ "page": page }));
    world.model.script("資料を読め", [read("二"), Reply::text("読んだ。")]);
    world.model.script("犬を頼め", [world.spawn("犬を足せ"), Reply::text("頼んだ。")]);
    let adds = Reply::call("mcp__pets__addPet", pet.clone());
    world.model.script("犬を足せ", [adds, Reply::text("足した。")]);
    let [reads_file, writes_file, skill] = files_and_skill(&world);
    let replies = [
        read("一"),
        Reply::call("mcp__docs__write", json!({ "page": "三" })),
        Reply::call("mcp__pets__getPetById", json!({ "petId": 7 })),
        Reply::call("mcp__pets__getPetById", json!({ "petId": "../user" })),
        reads_file,
        writes_file,
        Reply::call("mcp__old__read", json!({ "page": "四" })),
        skill,
        both,
        Reply::text("済みました。"),
    ];
    world.model.script("鶴を折って", replies);
    let tokens = json!({ "docs": "docs-canary-1", "pets": "pets-canary-2" });
    let answer = world.talk.post(&body("鶴を折って", json!({ "tokens": tokens })), &[]).await;
    let text = answer.text();
    let told = events(&text);
    assert_eq!(terminal(&told).data["result"], "済みました。", "{text}");

    check_servers(&toolbox, &pet);
    // What each call gave, in the order of the script.
    let results = of(&told, "tool_result");
    let result = |number: usize, is_error: bool, says: &str| {
        let found = results[number];
        assert_eq!(found["is_error"] == true, is_error, "{number}: {found}");
        assert!(found["content"].to_string().contains(says), "{number}: {found}");
    };
    result(0, false, "by [REDACTED]");
    result(1, true, "");
    result(2, false, "ポチ");
    result(3, true, "petId");
    result(4, false, "千代紙");
    result(5, false, "");
    result(6, false, "by [REDACTED]");
    assert!(world.asked("鶴を折って").contains("山折り。"), "the skill's text");
    let file = world.talk.path("/files/out/鶴.txt");
    assert_eq!(world.talk.tenant.client.get(&file).await.text(), "鶴\n");

    // Who is away is told, who is switched off is not even tried; no secret is told.
    let warned = of(&told, "warning");
    let warned: Vec<_> = warned.iter().map(|it| (&it["code"], &it["server"])).collect();
    assert_eq!(warned, [(&json!("MCP_SERVER_UNAVAILABLE"), &json!("away"))]);
    let asked = world.model.messages();
    let asked: String = asked.iter().map(|request| request.body.to_string()).collect();
    let tools = world.talk.execution(&id_of(&told), "/tools").await;
    for (place, words) in [("stream", &text), ("log", &world.app.log())] {
        assert!(!words.contains("-canary-"), "a secret in the {place}");
    }
    // What a server tells the CLI goes to its model as it is.
    assert!(!world.which.is_native() || !asked.contains("-canary-"), "a secret for the model");
    check_tracking(&world, &tools);
    // The CLI lists what a server has, and its call is refused.
    assert!(!world.which.is_native() || !offers(&world, "mcp__docs__write"));
    assert!(offers(&world, "mcp__docs__read") && !offers(&world, "mcp__off__read"));
    let rows = world.assert_billed(&id_of(&told), 0).await;
    assert_eq!(rows.iter().filter(|row| row["kind"] == "subagent").count(), 3, "{rows:#?}");
}

/// Whether the model was offered a tool. Newer versions of the CLI name tools outside of `tools`.
fn offers(world: &World, name: &str) -> bool {
    let first = world.model.messages().into_iter().find(|r| r.says("鶴を折って")).unwrap();
    let mut body = first.body;
    let tools = body["tools"].take().to_string();
    let system = body["system"].take().to_string();
    let said = body["messages"][0].to_string();
    [tools, system, said].iter().any(|text| text.contains(name))
}

/// Exactly what was asked of both servers, and with which secret.
fn check_servers(toolbox: &Toolbox, pet: &Value) {
    let heard = toolbox.docs.heard();
    let is_sent = |secret: &str| secret == "Bearer docs-canary-1";
    assert!(heard.iter().all(|message| is_sent(&message.authorization)), "{heard:#?}");
    let mut calls = toolbox.docs.calls();
    calls.sort_by_key(|(_, arguments)| arguments.to_string());
    let read = |page: &str| ("read".to_owned(), json!({ "page": page }));
    assert_eq!(calls, [read("一"), read("二"), read("四")], "and no `write`");
    let asked = toolbox.pets.asked();
    let lines: Vec<_> = asked.iter().map(|asked| asked.line.as_str()).collect();
    assert_eq!(lines, ["GET /api/v3/pet/7", "POST /api/v3/pet"]);
    for asked in &asked {
        assert_eq!(asked.authorization.as_deref(), Some("Bearer pets-canary-2"));
    }
    assert_eq!((asked[0].content_type.as_deref(), asked[0].body.as_str()), (None, ""));
    assert_eq!(asked[1].content_type.as_deref(), Some("application/json"));
    assert_eq!(serde_json::from_str::<Value>(&asked[1].body).unwrap(), *pet);
}

/// Every call has its record, with the subagent that made it.
fn check_tracking(world: &World, tools: &Value) {
    let tools = tools["items"].as_array().unwrap();
    let find = |field: &str, value: Value| {
        let found = tools.iter().find(|tool| tool["tool_input"][field] == value);
        found.unwrap_or_else(|| panic!("{field} {value} in {tools:#?}"))
    };
    let parent = |tool: &Value| tool["parent_tool_use_id"].clone();
    let task = |prompt: &str| find("prompt", json!(prompt))["tool_use_id"].clone();
    assert_eq!(parent(find("page", json!("一"))), Value::Null);
    assert_eq!(parent(find("page", json!("二"))), task("資料を読め"));
    assert_eq!(parent(find("prompt", json!("犬を足せ"))), task("犬を頼め"));
    if world.which.tells_of_nested() {
        assert_eq!(parent(find("name", json!("ポチ"))), task("犬を足せ"));
    }
    let count = if world.which.tells_of_nested() { 13 } else { 12 };
    assert_eq!(tools.len(), count, "{tools:#?}");
    let ended = |tool: &Value| tool["ended_at"].is_string() && tool["is_error"].is_boolean();
    assert!(tools.iter().all(ended), "{tools:#?}");
    assert!(tools.iter().any(|tool| tool["tool_name"] == world.which.task()));
}

async fn an_answer_that_is_too_long_or_a_server_that_fails_does_not_end_the_turn(
    which: TestEngine,
) {
    let world = World::start(which).await;
    let toolbox = Toolbox::set_up(&world).await;
    let calls = Reply::call("mcp__docs__read", json!({ "page": "全部" }))
        .and_call("mcp__docs__read", json!({ "page": 7 }));
    world.model.script("鶴を折って", [calls, Reply::text("済みました。")]);
    let tokens = json!({ "docs": "docs-canary-1", "pets": "pets-canary-2" });
    let answer = world.talk.post(&body("鶴を折って", json!({ "tokens": tokens })), &[]).await;
    let told = events(&answer.text());
    assert_eq!(terminal(&told).data["result"], "済みました。", "{:?}", terminal(&told));
    let results = world.model.messages();
    let results = results.iter().rev().find(|r| !r.tool_results().is_empty()).unwrap();
    let results = results.tool_results();
    assert!(results[0].text.len() < ALL_PAGES, "the model gets a part of it");
    if world.which.is_native() {
        // What is wrong with a call is the model's to know, before the server is bothered.
        assert!(results[0].text.contains("[cut: "), "{}", results[0].text.len());
        assert!(results[1].is_error && results[1].text.contains("/page"), "{results:?}");
        assert_eq!(toolbox.docs.calls().len(), 1);
    }
}
