package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A key's default is one of its values, and setting it changes nothing.
func TestDefaultsAreValues(t *testing.T) {
	for i, k := range keys() {
		if required := slices.Contains(requiredKeys(), k.name); required != (k.initial == "") {
			t.Errorf("%s is required: %v; and has no default: %v", k.name, required, k.initial == "")
			continue
		} else if required {
			continue
		}
		s := defaults()
		k = s.keys()[i]
		if err := k.take(k.initial); err != nil {
			t.Errorf("the default of %s: %v", k.name, err)
		}
		if got, want := fmt.Sprintf("%+v", s), fmt.Sprintf("%+v", defaults()); got != want {
			t.Errorf("%s set to its default is %s, want %s", k.name, got, want)
		}
		for _, word := range k.words {
			if err := k.take(word); err != nil {
				t.Errorf("shells offer %q for %s: %v", word, k.name, err)
			}
		}
	}
}

func reference() []byte {
	var b bytes.Buffer
	root := newRootCommand()
	fmt.Fprintf(&b, "<!-- Made of the commands' own help and of the configuration's keys by make generate; do not edit. -->\n\n# chubbyd\n\n")
	fmt.Fprintf(&b, "%s\n\n", prose(root.Long))
	var all []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		all = append(all, cmd)
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root)
	b.WriteString("## Commands\n\n")
	for _, cmd := range all[1:] {
		indent := strings.Repeat("  ", strings.Count(cmd.CommandPath(), " ")-1)
		fmt.Fprintf(&b, "%s- [`%s`](#%s): %s\n", indent, cmd.CommandPath(), strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cmd.Short)
	}
	b.WriteString("- `chubbyd completion bash|zsh|fish|powershell`: print the completion of a shell\n")
	b.WriteString("\nAlso here: [exit codes](#exit-codes), [configuration](#configuration). The endpoints of the http port, and the metrics, are on\n[a page of their own](metrics.md).\n")
	b.WriteString("\n## Exit codes\n\n")
	for _, code := range slices.Sorted(maps.Keys(exitCodes())) {
		fmt.Fprintf(&b, "- `%d`: %s\n", code, exitCodes()[code])
	}
	writeKeys(&b)
	for _, cmd := range all[1:] {
		writeCommand(&b, cmd)
	}
	return b.Bytes()
}

// writeKeys writes the table of the configuration.
func writeKeys(b *bytes.Buffer) {
	b.WriteString(`
## Configuration

Each key is read from the configuration file, from a variable and from a flag of ` + "`chubbyd serve`" + `: ` + "`log-level: warn`" + ` in the file,
` + "`" + variable("log-level") + "=warn`, `--log-level warn`" + `. A flag counts more than a variable, and a variable more than the file.
` + "`" + variable("config") + "`" + ` names the file if ` + "`--config`" + ` does not. ` + "`chubbyd config check FILE`" + ` reports everything that is wrong with a file.

| key | values | default | meaning |
|---|---|---|---|
`)
	for _, k := range keys() {
		initial := "required"
		if k.initial != "" {
			initial = "`" + k.initial + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", k.name, escaped(k.takes), initial, escaped(k.usage))
	}
	b.WriteString("\n`chubbyd config example` prints a complete file, with a longer comment on each key; packages install " +
		"[the same](../deploy/packages/chubbyd.yaml) with no\nkey set.\n")
}

func writeCommand(b *bytes.Buffer, cmd *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n", cmd.CommandPath())
	if cmd.Long == "" {
		fmt.Fprintf(b, "\n%s.\n", cmd.Short)
	}
	if !cmd.HasSubCommands() {
		fmt.Fprintf(b, "\n`%s`\n", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
	}
	if cmd.Long != "" {
		fmt.Fprintf(b, "\n%s\n", prose(cmd.Long))
	}
	var flags strings.Builder
	eachFlag(cmd, func(typed, usage string) { fmt.Fprintf(&flags, "- `%s`: %s\n", typed, escaped(usage)) })
	if takesKeys(cmd) {
		flags.WriteString("- every key of the [configuration](#configuration)\n")
	}
	if flags.Len() > 0 {
		b.WriteString("\n" + flags.String())
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", strings.TrimPrefix(strings.ReplaceAll(cmd.Example, "\n  ", "\n"), "  "))
	}
}

// prose turns help into Markdown: indented lines are code.
func prose(text string) string {
	var parts []string
	for part := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(part, "  ") {
			part = "```\n" + strings.TrimPrefix(strings.ReplaceAll(part, "\n  ", "\n"), "  ") + "\n```"
		} else {
			part = escaped(part)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "\n\n")
}

// escaped keeps Markdown from taking words for markup.
func escaped(text string) string {
	return strings.NewReplacer("<", `\<`, "*", `\*`, "_", `\_`, "|", `\|`).Replace(text)
}
