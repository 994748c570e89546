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

var (
	update = flag.Bool("update", false, "write docs/chubbyd.md and deploy/packages/chubbyd.yaml as commands and keys have it now")
	manual = flag.String("man", "", "write the manual pages into this directory")
)

// What is written about chubbyd is generated from the commands' own help and from the keys that the program reads, so that it
// is true: the page, and the configuration that packages install.
func TestReference(t *testing.T) {
	const root = "../.."
	files := map[string][]byte{"docs/chubbyd.md": reference(), "deploy/packages/chubbyd.yaml": packagedConfig()}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(root, filepath.FromSlash(name))
		if *update {
			if err := os.WriteFile(file, files[name], 0o644); err != nil {
				t.Error(err)
			}
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
		if err := os.WriteFile(filepath.Join(*manual, name), page, 0o644); err != nil {
			t.Error(err)
		}
	}
}

// A packaged configuration says nothing until somebody has edited it: then no replica starts with the names of an example.
func TestPackagedConfigRefusesToStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chubbyd.yaml")
	if err := os.WriteFile(file, packagedConfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := output(t, "serve", "--config", file)
	if exitCode(err) != exitRefused {
		t.Errorf("serve: exit code %d (%v), want %d, so that nothing starts it again", exitCode(err), err, exitRefused)
	}
	for _, name := range append(requiredKeys(), "tls-cert") {
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
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		var out bytes.Buffer
		root.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
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
		for _, child := range cmd.Commands() {
			check(child)
		}
	}
	check(root)
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
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		pages[dashed(cmd)+".8"] = md2man.Render(manPage(cmd))
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root)
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
