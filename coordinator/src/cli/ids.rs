//! Ids as they are given on the command line.

use uuid::Uuid;

/// Reads one, whatever it is of.
pub(super) fn id(text: &str) -> Result<Uuid, String> {
    Uuid::try_parse(text).map_err(|_| {
        "an id is a whole UUID, such as 0190e0a0-0000-7000-8000-000000000001; copy all of it from where it is shown, as \
         in `skein tasks list` and its like"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::Cli;

    #[test]
    fn what_is_no_id_is_told_so_wherever_one_is_wanted() {
        for line in [
            "skein task show ID",
            "skein task cancel ID",
            "skein task create text --depends-on ID",
            "skein memory forget ID",
            "skein questions answer ID blue",
            "skein questions decline ID",
            "skein dead-letters show ID",
            "skein dead-letters replay ID",
            "skein webhooks show ID",
            "skein webhooks replay ID",
            "skein token issue --role worker --name w --agent ID",
            "skein token revoke --agent ID",
            "skein token revoke --id ID",
            "skein client add ci --role worker --agent ID",
            "skein mcp-config --client codex --role worker --agent ID",
            "skein tools list --agent ID",
        ] {
            // The first letters of one, as people know them from other programs; and a name.
            for wrong in ["5fd2ae93", "nope"] {
                let line = line.replace("ID", wrong);
                let Err(said) = Cli::try_parse_from(line.split(' ')) else {
                    panic!("{line}: {wrong} is an id")
                };
                assert!(said.to_string().contains("an id is a whole UUID"), "{line}: {said}");
                assert_eq!(said.exit_code(), 2, "{line}");
            }
            let id = "0190e0a0-0000-7000-8000-000000000001";
            Cli::try_parse_from(line.replace("ID", id).split(' ')).unwrap();
        }
    }
}
