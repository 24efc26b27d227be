//! Skills: made, replaced, listed, removed, and what may not be in them.

use reqwest::Method;
use serde_json::{Value, json};
use shikiri_testkit::{Answer, Cli, Tenant, TestApp};

use crate::PROGRAM;

async fn put(tenant: &Tenant, name: &str, body: &Value) -> Answer {
    let path = tenant.path(&format!("/skills/{name}"));
    tenant.client.send(tenant.client.request(Method::PUT, &path).json(body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_is_made_replaced_and_removed() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("cook").await;
    let (client, skills) = (&tenant.client, tenant.path("/skills"));
    let new = json!({
        "name": "recipes", "description": "料理の手順", "content": "# 料理\n",
        "files": { "a/旬.md": "春\n", "run.sh": "#!/bin/sh\n" },
    });
    let made = client.post(&skills, &new).await;
    assert_eq!(made.header("location"), Some(format!("{skills}/recipes").as_str()));
    let mut skill = made.expect(201);
    for time in ["created_at", "updated_at"] {
        skill.as_object_mut().unwrap().remove(time);
    }
    let mut whole = new.clone();
    whole["status"] = json!("active");
    assert_eq!(skill, whole);
    client.post(&skills, &new).await.problem(409);

    let replaced =
        put(&tenant, "recipes", &json!({ "content": "neu", "status": "inactive" })).await;
    let replaced = replaced.expect(200);
    assert_eq!(
        (&replaced["files"], &replaced["description"]),
        (&json!({}), &json!("")),
        "the whole of it"
    );
    assert_eq!(client.get(&format!("{skills}/recipes")).await.expect(200), replaced);
    put(&tenant, "fresh", &json!({ "name": "fresh", "content": "x" })).await.expect(201);
    put(&tenant, "fresh", &json!({ "name": "other", "content": "x" })).await.problem(400);
    put(&tenant, "not.good", &json!({ "content": "x" })).await.problem(400);
    let names = |page: Value| -> Vec<String> {
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(client.get(&skills).await.expect(200)), ["recipes", "fresh"]);

    client.delete(&format!("{skills}/recipes")).await.expect(204);
    for missing in ["recipes", "never", "%00", "a.b", &"x".repeat(300)] {
        let path = format!("{skills}/{missing}");
        assert_eq!(client.get(&path).await.problem(404)["code"], "NOT_FOUND", "{missing}");
        assert_eq!(client.delete(&path).await.problem(404)["code"], "NOT_FOUND", "{missing}");
    }
    assert_eq!(names(client.get(&skills).await.expect(200)), ["fresh"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_lead_out_of_a_skill_or_is_too_much_is_refused() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("cook").await;
    for path in [
        "",
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a//b",
        "./a",
        "a/",
        "a\\b",
        "a\u{0}b",
        "a\nb",
        "SKILL.md",
        "skill.MD",
        &"d/".repeat(300),
        &"x".repeat(256),
    ] {
        let body = json!({ "content": "x", "files": { path: "y" } });
        let problem = put(&tenant, "s", &body).await.problem(400);
        assert_eq!(problem["field"], "files", "{path:?}: {problem}");
    }
    let many: serde_json::Map<_, _> = (0..101).map(|n| (format!("f{n}"), json!("x"))).collect();
    for (body, field) in [
        (json!({ "content": "x", "files": { "a": "x", "a/b": "y" } }), "files"),
        (json!({ "content": "x", "files": many }), "files"),
        (json!({ "content": "x", "files": { "a": "y".repeat(2 << 20) } }), "files"),
        (json!({ "content": "y".repeat((256 << 10) + 1) }), "content"),
        (json!({ "content": " \n" }), "content"),
        (json!({}), "body"),
        (json!({ "content": "x", "description": "長".repeat(1_025) }), "description"),
        (json!({ "content": "x", "version": 1 }), "version"),
    ] {
        assert_eq!(put(&tenant, "s", &body).await.problem(400)["field"], field);
    }
    assert_eq!(tenant.client.get(&tenant.path("/skills")).await.expect(200)["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_skills_stays_small_and_none_is_missed() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("cook").await;
    for n in 0..5 {
        let body = json!({ "content": "x", "files": { "big": "y".repeat(1_500_000) } });
        put(&tenant, &format!("s{n}"), &body).await.expect(201);
    }
    let (mut seen, mut path) = (Vec::new(), tenant.path("/skills"));
    loop {
        let page = tenant.client.get(&path).await;
        assert!(page.body.len() < 5 << 20, "{} bytes in a page", page.body.len());
        let page = page.expect(200);
        let items = page["items"].as_array().unwrap();
        seen.extend(items.iter().map(|skill| skill["name"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("{}?cursor={cursor}", tenant.path("/skills"));
    }
    assert_eq!(seen, ["s0", "s1", "s2", "s3", "s4"]);
}

#[test]
fn skills_come_from_folders_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::new(PROGRAM, folder.path());
    let skill = folder.path().join("mine");
    std::fs::create_dir_all(skill.join("sub/深")).unwrap();
    cli.run(&["skills", "create", "mine", "--from", "mine"]).refused(2, &["SKILL.md"]);
    std::fs::write(skill.join("SKILL.md"), "# 一\n").unwrap();
    std::fs::write(skill.join("sub/深/a.txt"), "二").unwrap();
    let made = ["skills", "create", "mine", "--from", "mine", "--description", "d", "--json"];
    let made = cli.run(&made).done().json();
    assert_eq!(
        (&made["content"], &made["files"]),
        (&json!("# 一\n"), &json!({ "sub/深/a.txt": "二" }))
    );
    let set = cli.run(&["skills", "set", "mine", "--status", "inactive", "--json"]).done().json();
    assert_eq!(
        (&set["files"], &set["description"], &set["status"]),
        (&made["files"], &json!("d"), &json!("inactive"))
    );
    let set =
        cli.run(&["skills", "set", "mine", "--from", "mine/SKILL.md", "--json"]).done().json();
    assert_eq!((&set["files"], &set["status"]), (&json!({}), &json!("inactive")));
    let shown = cli.run(&["skills", "show", "mine"]).done().stdout;
    assert!(shown.contains("SKILL.md (6 bytes)"), "{shown}");
    assert!(cli.run(&["skills", "list"]).done().stdout.contains("mine"));

    std::os::unix::fs::symlink("/etc/hostname", skill.join("link")).unwrap();
    cli.run(&["skills", "set", "mine", "--from", "mine"]).refused(2, &["link"]);
    std::fs::remove_file(skill.join("link")).unwrap();
    std::fs::write(skill.join("binary"), [0xff, 0xfe]).unwrap();
    cli.run(&["skills", "set", "mine", "--from", "mine"]).refused(2, &["binary"]);
    cli.run(&["skills", "remove", "mine"]).done();
    cli.run(&["skills", "remove", "mine"]).refused(4, &["mine", "shikiri skills list"]);
}
