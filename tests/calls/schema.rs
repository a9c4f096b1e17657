//! Two ends that know a service's types differently.

use bellwire::{
    CallError, Client, ClientConfig, ErrorKind, ProviderState, Service, StatsClient, schema,
};

use crate::support::test_server::{Dir, client_config, provide};

macro_rules! service {
    ($name:ident, $schema:expr, $request:ty) => {
        struct $name;

        impl Service for $name {
            const NAME: &'static str = "schema";
            const SCHEMA: u64 = $schema;
            type Request = $request;
            type Response = u64;
        }
    };
}

service!(Small, schema("u32 -> u64"), u32);
service!(Large, schema("u64 -> u64"), u64);
service!(Unknown, 0, u32);

#[test]
fn types_that_differ_are_noticed_before_the_first_message_and_named() {
    let dir = Dir::new();
    let server = provide::<Small>(&dir.run_dir, |_, number| Ok(number.into()));
    let mut large = Client::<Large>::with_config(&dir.run_dir, client_config());
    let error = large.call(&1).unwrap_err();
    assert!(matches!(error, CallError::Refused { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    let reply = error.to_string();
    for fingerprint in [Small::SCHEMA, Large::SCHEMA] {
        assert!(reply.contains(&format!("{fingerprint:016x}")), "{reply}");
    }
    assert!(matches!(large.state(), ProviderState::Refused { .. }));
    assert_eq!(Client::<Small>::with_config(&dir.run_dir, client_config()).call(&7).unwrap(), 7);
    assert_eq!(Client::<Unknown>::with_config(&dir.run_dir, client_config()).call(&7).unwrap(), 7);
    let service = Client::<Large>::SERVICE;
    let mut stats_client =
        StatsClient::open(&dir.run_dir, service, &ClientConfig::default()).unwrap();
    assert_eq!(stats_client.fetch().unwrap().total.answered, 2, "counters are for everybody");
    drop(stats_client);
    assert_eq!(server.stop().clients_refused, 1);
}

#[test]
fn a_fingerprint_is_the_same_in_every_language() {
    assert_eq!(schema(""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(schema("a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(schema("foobar"), 0x8594_4171_f739_67e8);
}
