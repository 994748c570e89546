package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A key's default is one of its values, and setting it changes nothing.
func TestDefaultsAreValues(t *testing.T) {
	for i, k := range keys() {
		if required := slices.Contains([]string{"cell", "id", "members", "data"}, k.name); required != (k.initial == "") {
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

// eachCommand calls f with a command and all below it.
func eachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, child := range cmd.Commands() {
		eachCommand(child, f)
	}
}

func reference() []byte {
	var b bytes.Buffer
	root := newRootCommand()
	fmt.Fprintf(&b, "<!-- Made of the commands' own help and of the configuration's keys by make generate; do not edit. -->\n\n# chubbyd\n\n")
	fmt.Fprintf(&b, "%s\n\n", prose(root.Long))
	var all []*cobra.Command
	eachCommand(root, func(cmd *cobra.Command) { all = append(all, cmd) })
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

var (
	update = flag.Bool("update", false, "write docs/chubbyd.md and deploy/packages/chubbyd.yaml as commands and keys have it now")
	manual = flag.String("man", "", "write the manual pages into this directory")
)

// The page about chubbyd, and the configuration that packages install, are generated from the commands' own help and the keys
// that the program reads, so that they are true.
func TestReference(t *testing.T) {
	const root = "../.."
	files := map[string][]byte{"docs/chubbyd.md": reference(), "deploy/packages/chubbyd.yaml": packagedConfig()}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(root, filepath.FromSlash(name))
		if *update {
			report(t, os.WriteFile(file, files[name], 0o644))
			continue
		}
		if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, files[name]) {
			t.Errorf("%s is not what the commands and keys say (%v); run make generate", name, err)
		}
	}
}

// A release has a manual page of each command and of the configuration. They are made with it (make release-files).
func TestManualPages(t *testing.T) {
	pages := manPages()
	for _, want := range []string{"chubbyd.8", "chubbyd-serve.8", "chubbyd.yaml.5"} {
		if !bytes.HasPrefix(pages[want], []byte(".nh\n.TH ")) {
			t.Errorf("%s begins with %.20q", want, pages[want])
		}
	}
	if *manual == "" {
		return
	}
	for name, page := range pages {
		report(t, os.WriteFile(filepath.Join(*manual, name), page, 0o644))
	}
}

// A packaged configuration says nothing until somebody has edited it: then no replica starts with the names of an example.
func TestPackagedConfigRefusesToStart(t *testing.T) {
	file := fileWith(t, string(packagedConfig()))
	_, _, err := output(t, "serve", "--config", file)
	if exitCode(err) != exitRefused {
		t.Errorf("serve: exit code %d (%v), want %d, so that nothing starts it again", exitCode(err), err, exitRefused)
	}
	for _, name := range []string{"cell", "id", "members", "data", "tls-cert"} {
		if err == nil || !strings.Contains(err.Error(), file+": "+name+" is missing") {
			t.Errorf("serve does not say that %s is missing: %v", name, err)
		}
	}
}

// No line of help is longer than 80 columns, except examples, which users paste, and lines of a single word.
func TestHelpFits(t *testing.T) {
	root := newRootCommand()
	root.InitDefaultHelpFlag()
	root.InitDefaultCompletionCmd("serve")
	eachCommand(root, func(cmd *cobra.Command) {
		var out bytes.Buffer
		root.SetOut(&out)
		noErr(t, cmd.Help())
		text := strings.Replace(out.String(), cmd.Example, "", 1)
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\n")
			if len([]rune(line)) > 80 && len(strings.Fields(line)) > 1 {
				t.Errorf("%s: a line of its help has more than 80 columns: %s", cmd.CommandPath(), line)
			}
		}
		if !strings.Contains(text, "Usage:\n") {
			t.Errorf("%s: its help does not say how it is typed:\n%s", cmd.CommandPath(), text)
		}
	})
}

// packagedConfig is the example with no key set.
func packagedConfig() []byte {
	var b bytes.Buffer
	b.WriteString(`# Made of 'chubbyd config example', with every key commented out. chubbyd does not start until this file says at least
# cell, id, members and data, and the certificates (or insecure: true, for trying). docs/deployment.md has the way from
# nothing to a cell: https://github.com/chubbylock/chubby/blob/main/docs/deployment.md

`)
	for line := range strings.Lines(exampleConfig) {
		if line[0] != '#' && line != "\n" {
			b.WriteByte('#')
		}
		b.WriteString(line)
	}
	return b.Bytes()
}

// manPages returns the manual pages by their names: one of each command, in the section of daemons, and one of the configuration.
func manPages() map[string][]byte {
	pages := map[string][]byte{"chubbyd.yaml.5": md2man.Render(manPageOfConfig())}
	root := newRootCommand()
	root.InitDefaultHelpFlag()
	root.InitDefaultCompletionCmd("serve") // cobra adds it by itself when a command is executed
	eachCommand(root, func(cmd *cobra.Command) {
		if !cmd.Hidden {
			pages[dashed(cmd)+".8"] = md2man.Render(manPage(cmd))
		}
	})
	return pages
}

func dashed(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manHead begins a manual page. It has no date: the same help is the same page.
func manHead(b *bytes.Buffer, title, section, short string) {
	fmt.Fprintf(b, "%% %q %q %q %q %q\n\n# NAME\n\n%s - %s\n\n", strings.ToUpper(title), section, "", "Chubby", "Chubby Manual", title, escaped(short))
}

func definition(b *bytes.Buffer, word, meaning string) {
	fmt.Fprintf(b, "**%s**\n:   %s\n\n", escaped(word), escaped(meaning))
}

// manPage is the Markdown from which go-md2man makes a manual page.
func manPage(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	manHead(&b, dashed(cmd), "8", cmd.Short)
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	fmt.Fprintf(&b, "# SYNOPSIS\n\n**%s**\n\n# DESCRIPTION\n\n%s\n\n", escaped(cmd.UseLine()), prose(long))
	var options bytes.Buffer
	eachFlag(cmd, func(typed, usage string) { definition(&options, typed, usage) })
	if options.Len() > 0 {
		fmt.Fprintf(&b, "# OPTIONS\n\n%s", options.String())
	}
	if takesKeys(cmd) {
		b.WriteString("Every key of the configuration is an option, too: see **chubbyd.yaml(5)**.\n\n")
	}
	if !cmd.HasParent() || cmd.Name() == "serve" {
		b.WriteString("# EXIT STATUS\n\n")
		for _, code := range slices.Sorted(maps.Keys(exitCodes())) {
			definition(&b, fmt.Sprint(code), exitCodes()[code])
		}
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "# EXAMPLES\n\n```\n%s\n```\n\n", strings.TrimPrefix(strings.ReplaceAll(cmd.Example, "\n  ", "\n"), "  "))
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, "**"+dashed(cmd.Parent())+"(8)**")
	}
	for _, child := range cmd.Commands() {
		if !child.Hidden {
			others = append(others, "**"+dashed(child)+"(8)**")
		}
	}
	fmt.Fprintf(&b, "# SEE ALSO\n\n%s, **chubbyd.yaml(5)**, **chubbyctl(1)**\n", strings.Join(others, ", "))
	return b.Bytes()
}

// manPageOfConfig is that of the configuration file.
func manPageOfConfig() []byte {
	var b bytes.Buffer
	manHead(&b, "chubbyd.yaml", "5", "the configuration of a replica of a Chubby cell")
	fmt.Fprintf(&b, "# DESCRIPTION\n\nThe file is in YAML. Each key is also a variable and a flag of **chubbyd-serve(8)**: *log-level: warn*, "+
		"*%s=warn*, *\\-\\-log-level warn*. A flag counts more than a variable, and a variable more than the file. "+
		"*chubbyd config check FILE* reports everything that is wrong with a file, and *chubbyd config example* prints a complete one with comments.\n\n# KEYS\n\n",
		escaped(variable("log-level")))
	for _, k := range keys() {
		initial := "Required."
		if k.initial != "" {
			initial = "Default: " + k.initial + "."
		}
		definition(&b, k.name, fmt.Sprintf("%s. Values: %s. %s", k.usage, strings.ReplaceAll(k.takes, "at the right", "above"), initial))
	}
	fmt.Fprintf(&b, "# SEE ALSO\n\n**chubbyd(8)**, **chubbyd-serve(8)**, **chubbyd-config(8)**\n")
	return b.Bytes()
}

// takesKeys reports whether every key of the configuration is a flag of a command.
func takesKeys(cmd *cobra.Command) bool { return cmd.Flags().Lookup("members") != nil }

// eachFlag calls found for each flag of a command as it is typed, with what it does, but for keys of the configuration.
func eachFlag(cmd *cobra.Command, found func(typed, usage string)) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, isKey := newDraft("").find(f.Name); f.Hidden || f.Name == "help" || isKey && takesKeys(cmd) {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		switch f.DefValue {
		case "", "false", "0":
		default:
			usage += " (default " + f.DefValue + ")"
		}
		typed := strings.TrimSpace("--" + f.Name + " " + name)
		if f.Shorthand != "" {
			typed = "-" + f.Shorthand + ", " + typed
		}
		found(typed, usage)
	})
}
