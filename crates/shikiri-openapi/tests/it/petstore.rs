use serde_json::json;

use super::*;

#[test]
fn every_operation_of_the_older_pet_store_is_a_tool() {
    let api = api(PETSTORE_30);
    let mut found = names(&api);
    found.sort_unstable();
    let expected = [
        "addPet",
        "createUser",
        "createUsersWithListInput",
        "deleteOrder",
        "deletePet",
        "deleteUser",
        "findPetsByStatus",
        "findPetsByTags",
        "getInventory",
        "getOrderById",
        "getPetById",
        "getUserByName",
        "loginUser",
        "logoutUser",
        "placeOrder",
        "updatePet",
        "updatePetWithForm",
        "updateUser",
        "uploadFile",
    ];
    assert_eq!(found, expected);
    assert_eq!((api.openapi.as_str(), api.title.as_str()), ("3.0.4", "Pet store"));
    assert_eq!(api.base.as_str(), "https://pets.example/api/v3");
    assert_eq!(api.remarks, Vec::<String>::new());
    let add = operation(&api, "addPet");
    let expected = json!({
        "type": "object", "additionalProperties": false, "required": ["name", "photoUrls"],
        "properties": {
            "id": { "type": "integer", "format": "int64" },
            "name": { "type": "string" },
            "category": { "$ref": "#/$defs/Category" },
            "photoUrls": { "type": "array", "items": { "type": "string" } },
            "tags": { "type": "array", "items": { "$ref": "#/$defs/Tag" } },
            "status": { "type": "string", "description": "How it is in the store",
                "enum": ["available", "pending", "sold"] },
        },
        "$defs": {
            "Category": { "type": "object", "properties": {
                "id": { "type": "integer", "format": "int64" }, "name": { "type": "string" } } },
            "Tag": { "type": "object", "properties": {
                "id": { "type": "integer", "format": "int64" }, "name": { "type": "string" } } },
        },
    });
    let mut required = add.input_schema.clone();
    required["required"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
    assert_eq!(required, expected);
    assert_eq!(add.description, "Adds a pet to the store");
    // A header parameter is no argument.
    let delete = &operation(&api, "deletePet").input_schema["properties"];
    assert_eq!(delete.as_object().unwrap().keys().collect::<Vec<_>>(), ["petId"]);
    assert!(operation(&api, "getPetById").is_read() && !add.is_read());
    assert_eq!(api.missing_keys(["X-Other"].into_iter()), ["Authorization", "api_key"]);
    assert_eq!(api.missing_keys(["authorization", "api_key"].into_iter()), Vec::<String>::new());
}

#[test]
fn calls_of_the_older_pet_store_are_the_right_requests() {
    let api = api(PETSTORE_30);
    let made = |name, arguments| request(&api, name, arguments).unwrap();
    let at = |rest: &str| format!("https://pets.example/api/v3{rest}");

    let found = made("findPetsByTags", json!({ "tags": ["a b", "犬"] }));
    assert_eq!(line(&found), format!("GET {}", at("/pet/findByTags?tags=a%20b&tags=%E7%8A%AC")));
    assert_eq!((found.body, found.headers.len()), (None, 0));

    let added = made("addPet", json!({ "name": "ポチ", "photoUrls": [], "category": { "id": 1 } }));
    assert_eq!(line(&added), format!("POST {}", at("/pet")));
    assert_eq!(added.headers["Content-Type"], "application/json");
    let sent: Value = serde_json::from_str(&body(&added)).unwrap();
    assert_eq!(sent, json!({ "name": "ポチ", "photoUrls": [], "category": { "id": 1 } }));

    let changed = made("updatePetWithForm", json!({ "petId": 7, "name": "x&y", "status": null }));
    assert_eq!(line(&changed), format!("POST {}", at("/pet/7?name=x%26y")));
    assert_eq!(changed.body, None);

    let picture = json!({ "petId": 7, "additionalMetadata": "m", "body": "bytes" });
    let picture = made("uploadFile", picture);
    assert_eq!(line(&picture), format!("POST {}", at("/pet/7/uploadImage?additionalMetadata=m")));
    assert_eq!(picture.headers["Content-Type"], "application/octet-stream");
    assert_eq!(body(&picture), "bytes");

    let users = made("createUsersWithListInput", json!({ "body": [{ "username": "u" }] }));
    assert_eq!(body(&users), r#"[{"username":"u"}]"#);
    // `username` is in the path and in the body.
    let user = made("updateUser", json!({ "username": "old/name", "body_username": "new" }));
    assert_eq!(line(&user), format!("PUT {}", at("/user/old%2Fname")));
    assert_eq!(body(&user), r#"{"username":"new"}"#);
}

#[test]
fn the_newer_pet_store_is_understood_as_it_is() {
    let api = api(PETSTORE_31);
    assert_eq!(names(&api), ["updatePet", "addPet", "getPetById"]);
    let add = &operation(&api, "addPet").input_schema;
    assert_eq!(add["properties"]["nickname"], json!({ "type": ["string", "null"] }));
    assert_eq!(add["properties"]["petType"], json!({ "const": "fish" }));
    let category = json!({ "$ref": "#/$defs/Category", "description": "Its kind" });
    assert_eq!(add["properties"]["category"], category);
    assert_eq!(add["properties"]["friends"]["items"], json!({ "$ref": "#/$defs/Pet" }));
    assert!(add["$defs"]["Pet"]["properties"]["friends"].is_object(), "a pet has friends: {add}");
    let get = &operation(&api, "getPetById").input_schema["properties"]["petId"];
    assert_eq!(get["exclusiveMinimum"], 1);
    let made = request(&api, "getPetById", json!({ "petId": 5 })).unwrap();
    assert_eq!(line(&made), "GET https://pets.example/api/v31/pet/5");
}
