//! What holds for every artifact and every text.

use super::{generate, generate_slas, node, options};
use crate::dsl::{
    GatewayView, documents, read_blueprint, read_breed, read_deployment_body, read_escalation,
    read_gateway, read_posted_event, read_scale, read_sla, write_blueprint, write_breed,
    write_escalation, write_gateway, write_scale, write_sla,
};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_written_breed_reads_the_same(breed in generate::breed()) {
        let text = write_breed(&breed).to_string();
        prop_assert_eq!(read_breed(&node(&text), &options()), Ok(breed), "{}", text);
    }

    #[test]
    fn a_written_scale_reads_the_same(scale in generate::scale()) {
        let text = write_scale(&scale).to_string();
        prop_assert_eq!(read_scale(&node(&text), &options()), Ok(scale), "{}", text);
    }

    #[test]
    fn a_written_escalation_reads_the_same(escalation in generate_slas::named_escalation()) {
        let text = write_escalation(&escalation).to_string();
        prop_assert_eq!(read_escalation(&node(&text), &options()), Ok(escalation), "{}", text);
    }

    #[test]
    fn a_written_sla_reads_the_same(sla in generate_slas::named_sla()) {
        let text = write_sla(&sla).to_string();
        prop_assert_eq!(read_sla(&node(&text), &options()), Ok(sla), "{}", text);
    }

    #[test]
    fn a_written_gateway_reads_the_same(gateway in generate::gateway()) {
        let text = write_gateway(&gateway, &GatewayView::default()).to_string();
        prop_assert_eq!(read_gateway(&node(&text), &options()), Ok(gateway), "{}", text);
    }

    #[test]
    fn a_written_blueprint_reads_the_same(blueprint in generate::blueprint()) {
        let text = write_blueprint(&blueprint).to_string();
        prop_assert_eq!(read_blueprint(&node(&text), &options()), Ok(blueprint), "{}", text);
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in "[a-c:{}\\[\\],&*<|>~!%#'\"\\\\ \n\t-]{0,60}") {
        for node in documents(&text).unwrap_or_default() {
            let _ = read_breed(&node, &options());
            let _ = read_scale(&node, &options());
            let _ = read_escalation(&node, &options());
            let _ = read_sla(&node, &options());
            let _ = read_gateway(&node, &options());
            let _ = read_blueprint(&node, &options());
            let _ = read_deployment_body(&node, &options());
            let _ = read_posted_event(&node);
        }
    }

    #[test]
    fn json_means_the_same_in_yaml(breed in generate::breed()) {
        let json = serde_json::Value::Object(breed.metadata);
        prop_assert_eq!(node(&json.to_string()).to_json(), json);
    }
}
