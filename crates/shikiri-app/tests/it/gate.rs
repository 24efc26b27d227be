//! Who is let in and for how long, whatever the door.

use std::sync::Arc;
use std::time::Duration;

use shikiri_model::ids::TenantId;
use shikiri_model::key::{KeyScope, SecretToken};
use shikiri_runtime::AppError;
use shikiri_tenancy::gate::{AccessGate, GateOptions, KeyHolder};
use shikiri_tenancy::keys::NewApiKey;
use shikiri_tenancy::tenants::{LimitsPatch, TenantPatch};

use crate::world::World;

fn local() -> TenantId {
    TenantId::local()
}

async fn new_caller(gate: &AccessGate) -> KeyHolder {
    let (_, secret) = gate.tenancy().create_key(&local(), NewApiKey::named("test")).await.unwrap();
    gate.caller(&secret).await.unwrap().unwrap()
}

async fn set_limits(gate: &AccessGate, limits: LimitsPatch) {
    let patch = TenantPatch { limits, ..TenantPatch::default() };
    gate.tenancy().update_tenant(&local(), patch).await.unwrap();
    gate.forget_tenants();
}

#[tokio::test]
async fn a_key_lets_its_holder_in_until_it_is_revoked() {
    let world = World::new(vec![]).await;
    let gate = AccessGate::new(world.app.tenancy.clone(), GateOptions::default());
    let (stored, secret) =
        world.app.tenancy.create_key(&local(), NewApiKey::named("test")).await.unwrap();
    // Looked up, then remembered: the same both times.
    for _ in 0..2 {
        let caller = gate.caller(&secret).await.unwrap().unwrap();
        assert_eq!(
            (caller.key, caller.scope),
            (stored.value.id.clone(), stored.value.scope.clone())
        );
        assert_eq!(caller.secret.reveal(), secret.reveal());
    }
    assert_eq!(stored.value.scope, KeyScope::Tenant(local()));
    assert!(gate.caller(&SecretToken::from_caller("shk_unknown")).await.unwrap().is_none());

    world.app.tenancy.revoke_key(&local(), &stored.value.id).await.unwrap();
    gate.forget_keys();
    assert!(gate.caller(&secret).await.unwrap().is_none());
}

#[tokio::test]
async fn a_tenant_gets_what_its_limits_allow() {
    let world = World::new(vec![]).await;
    let gate = AccessGate::new(
        world.app.tenancy.clone(),
        GateOptions { max_streams: 2, ..GateOptions::default() },
    );
    let caller = new_caller(&gate).await;
    let tenant = gate.tenant(&local()).await.unwrap();
    let limits = LimitsPatch {
        requests_per_minute: Some(Some(1)),
        max_streams: Some(Some(1)),
        ..LimitsPatch::default()
    };
    set_limits(&gate, limits).await;
    let limited = gate.tenant(&local()).await.unwrap();

    gate.count_request(&limited).unwrap();
    let refused = gate.count_request(&limited).unwrap_err();
    assert!(matches!(refused, AppError::Limit { .. }), "{refused:?}");
    gate.count_request(&tenant).unwrap();

    let first = gate.open_stream(&caller, &limited).unwrap();
    let refused = gate.open_stream(&caller, &limited).err().unwrap();
    assert_eq!(refused.to_string(), "the tenant's 1 streams are all in use: end one first");
    let _second = gate.open_stream(&caller, &tenant).unwrap();
    let refused = gate.open_stream(&caller, &tenant).err().unwrap();
    assert_eq!(refused.to_string(), "the server's 2 streams are all in use");
    assert_eq!(gate.open_streams(), 2);
    drop(first);
    assert_eq!(gate.open_streams(), 1);
}

#[tokio::test]
async fn a_stream_is_over_when_its_key_is_revoked_or_the_process_drains() {
    let world = World::new(vec![]).await;
    let gate = AccessGate::new(world.app.tenancy.clone(), GateOptions::default());
    let tenant = gate.tenant(&local()).await.unwrap();
    let (revoked, kept) = (new_caller(&gate).await, new_caller(&gate).await);
    let first = gate.open_stream(&revoked, &tenant).unwrap();
    let second = gate.open_stream(&kept, &tenant).unwrap();
    world.app.tenancy.revoke_key(&local(), &revoked.key).await.unwrap();
    let sweeping = Arc::clone(&gate);
    let sweep = tokio::spawn(async move { sweeping.sweep().await });

    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, first.cancellation().cancelled())
        .await
        .expect("its key was revoked");
    assert!(!second.cancellation().is_cancelled());
    gate.draining().cancel();
    assert!(second.cancellation().is_cancelled());
    tokio::time::timeout(limit, sweep).await.expect("the sweep ends with the drain").unwrap();
}
