package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	update = flag.Bool("update", false, "write docs/cli.md as the commands have it now")
	manual = flag.String("man", "", "write the manual pages into this directory")
)

// The reference is in the repository, so that it can be read without building anything, and generated from the commands' own
// help, so that it is true. A test generates it, so that the program need not be linked with the generator.
func TestReference(t *testing.T) {
	const file = "../../docs/cli.md"
	page := onePage(commands())
	if *update {
		if err := os.WriteFile(file, page, 0o644); err != nil {
			t.Error(err)
		}
	} else if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, page) {
		t.Errorf("docs/cli.md is not what the commands say (%v); run make generate", err)
	}
}

// A release has a manual page of each command. They are made with it (make release-files).
func TestManualPages(t *testing.T) {
	for _, cmd := range commands() {
		name, page := strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1", md2man.Render(manPage(cmd))
		if !bytes.HasPrefix(page, []byte(".nh\n.TH ")) {
			t.Errorf("%s begins with %.20q", name, page)
		}
		if *manual == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(*manual, name), page, 0o644); err != nil {
			t.Error(err)
		}
	}
}

// Every command has help and an example, and every flag help.
func TestEveryCommandIsExplained(t *testing.T) {
	for _, cmd := range commands() {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: Short is %q", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Runnable() && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		if cmd.Runnable() && cmd.ValidArgsFunction == nil {
			t.Errorf("%s: nobody has decided what Tab offers for its arguments", cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s is not explained", cmd.CommandPath(), f.Name)
			}
		})
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if len([]rune(line)) > 91 {
				t.Errorf("%s: a line of its help has more than 90 columns: %s", cmd.CommandPath(), line)
			}
		}
	}
}

// No line of help is longer than 80 columns, except lines of a single word.
func TestHelpFits(t *testing.T) {
	for _, cmd := range commands() {
		var out bytes.Buffer
		cmd.Root().SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\n")
			if len([]rune(line)) > 80 && len(strings.Fields(line)) > 1 {
				t.Errorf("%s: a line of its help has more than 80 columns: %s", cmd.CommandPath(), line)
			}
		}
		if !strings.Contains(text, "Usage:\n") {
			t.Errorf("%s: its help does not say how it is typed:\n%s", cmd.CommandPath(), text)
		}
	}
}

// commands lists the root and all commands below it, in the order of the page.
func commands() []*cobra.Command {
	root, _ := newRootCommand()
	root.InitDefaultHelpFlag()
	var list []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		list = append(list, cmd)
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root)
	return list
}

// onePage is docs/cli.md.
func onePage(all []*cobra.Command) []byte {
	var b bytes.Buffer
	root := all[0]
	fmt.Fprintf(&b, "<!-- Made of the commands' own help by make generate; do not edit. -->\n\n# chubbyctl\n\n")
	fmt.Fprintf(&b, "%s\n\n```\n%s\n```\n\n## Commands\n\n", prose(introduction(root)), dedented(root.Example))
	for _, cmd := range all[1:] {
		depth := strings.Count(cmd.CommandPath(), " ") - 1
		fmt.Fprintf(&b, "%s- [`%s`](#%s): %s\n", strings.Repeat("  ", depth), relative(cmd), anchor(cmd), escaped(cmd.Short))
	}
	fmt.Fprintf(&b, "\nAlso here: [flags of every command](#flags-of-every-command), [exit codes](#exit-codes), [environment](#environment).\n")
	fmt.Fprintf(&b, "\n## Flags of every command\n\n%s", flagList(root.PersistentFlags()))
	fmt.Fprintf(&b, "\n## Exit codes\n\n%s\n## Environment\n\n%s", termList(topic("exit-codes")), termList(topic("environment")))
	before := &said{paragraphs: map[string]*cobra.Command{}}
	for _, cmd := range all[1:] {
		fmt.Fprintf(&b, "\n## %s\n", cmd.CommandPath())
		if cmd.Long == "" {
			fmt.Fprintf(&b, "\n%s.\n", escaped(cmd.Short))
		}
		if !cmd.HasSubCommands() || strings.Contains(cmd.Use, " ") {
			fmt.Fprintf(&b, "\n`%s`\n", strings.Replace(cmd.UseLine(), " [flags]", "", 1))
		}
		if cmd.Long != "" {
			fmt.Fprintf(&b, "\n%s\n", prose(before.description(cmd)))
		}
		if flags := before.flags(cmd); flags != "" {
			b.WriteString("\n" + flags)
		}
		if cmd.Example != "" {
			fmt.Fprintf(&b, "\n```\n%s\n```\n", dedented(cmd.Example))
		}
	}
	return b.Bytes()
}

// said is what the page has told of the commands so far. What several commands have in common stands with the first of them alone;
// the others have a link.
type said struct {
	paragraphs map[string]*cobra.Command // by their text
	commands   []*cobra.Command
}

// description is a command's help, with the first sentence only of a long paragraph that is there already.
func (s *said) description(cmd *cobra.Command) string {
	const long = 40 // words
	paragraphs := strings.Split(cmd.Long, "\n\n")
	for i, text := range paragraphs {
		if len(strings.Fields(text)) < long || strings.HasPrefix(text, "  ") {
			continue
		}
		if first, found := s.paragraphs[text]; found {
			sentence := regexp.MustCompile(`\.\s`).Split(text, 2)[0]
			paragraphs[i] = fmt.Sprintf("%s ([more](#%s)).", sentence, anchor(first))
		} else {
			s.paragraphs[text] = cmd
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// flags is the list of a command's own flags. Those that it has in common with a command before, if they are several, are only named.
func (s *said) flags(cmd *cobra.Command) string {
	const several = 4
	var like *cobra.Command
	var common []string
	for _, before := range s.commands {
		if names := sameFlags(cmd, before); len(names) >= several && len(names) > len(common) {
			like, common = before, names
		}
	}
	s.commands = append(s.commands, cmd)
	rest := pflag.NewFlagSet("", pflag.ContinueOnError)
	ownFlags(cmd).VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(common, "`--"+f.Name+"`") {
			rest.AddFlag(f)
		}
	})
	text := flagList(rest)
	if like != nil {
		text += fmt.Sprintf("- as for [%s](#%s): %s\n", relative(like), anchor(like), strings.Join(common, ", "))
	}
	return text
}

// sameFlags are the names of the flags that two commands explain in the same words.
func sameFlags(cmd, other *cobra.Command) []string {
	rows := map[string]string{}
	ownFlags(other).VisitAll(func(f *pflag.Flag) {
		typed, does := describedFlag(f)
		rows[typed] = does
	})
	var names []string
	ownFlags(cmd).VisitAll(func(f *pflag.Flag) {
		typed, does := describedFlag(f)
		if same, found := rows[typed]; found && same == does {
			names = append(names, "`--"+f.Name+"`")
		}
	})
	return names
}

// relative is a command without the program's name: "cell status".
func relative(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "chubbyctl ") }

func anchor(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// introduction is the root's description without the tables that follow it,
// which the pages have as lists.
func introduction(root *cobra.Command) string {
	text, _, _ := strings.Cut(root.Long, "\n\nExit codes")
	return text
}

func ownFlags(cmd *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			own.AddFlag(f)
		}
	})
	return own
}

// describedFlag writes a flag as it is typed, with a word for its value, and what it does.
func describedFlag(f *pflag.Flag) (typed, does string) {
	value, usage := pflag.UnquoteUsage(f)
	typed = "--" + f.Name
	if f.Shorthand != "" {
		typed = "-" + f.Shorthand + ", " + typed
	}
	if value != "" {
		typed += " " + value
	}
	switch f.DefValue {
	case "", "false", "0", "0s", "[]":
	default:
		usage += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	return typed, usage
}

func flagList(flags *pflag.FlagSet) string {
	var terms []entry
	flags.VisitAll(func(f *pflag.Flag) {
		typed, does := describedFlag(f)
		terms = append(terms, entry{typed, does})
	})
	return termList(terms)
}

func termList(terms []entry) string {
	var b strings.Builder
	for _, t := range terms {
		fmt.Fprintf(&b, "- `%s`: %s\n", t.word, escaped(t.meaning))
	}
	return b.String()
}

// prose turns help into Markdown. Indented lines are kept as they are.
func prose(text string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(text + "\n") {
		line = strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(line, "  ")
		switch {
		case indented && !code:
			b.WriteString("\n```\n")
		case !indented && code:
			b.WriteString("```\n")
			if line != "" {
				b.WriteString("\n")
			}
		}
		code = indented
		if code {
			b.WriteString(strings.TrimPrefix(line, "  ") + "\n")
		} else {
			b.WriteString(escaped(line) + "\n")
		}
	}
	if code {
		b.WriteString("```\n")
	}
	return strings.TrimSpace(b.String())
}

// escaped keeps Markdown from taking words for markup.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, "<", `\<`, "*", `\*`, "_", `\_`).Replace(text)
}

func dedented(text string) string {
	return strings.TrimPrefix(strings.ReplaceAll(text, "\n  ", "\n"), "  ")
}

// manPage is the Markdown from which go-md2man makes a manual page.
func manPage(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	title := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	fmt.Fprintf(&b, "%% %q %q %q %q %q\n\n# NAME\n\n%s - %s\n\n# SYNOPSIS\n\n**%s**\n\n", // no date: the same help is the same page
		strings.ToUpper(title), "1", "", "Chubby", "Chubby Manual", title, escaped(cmd.Short), escaped(cmd.UseLine()))
	long, root := cmd.Long, cmd.Root() == cmd
	if root {
		long = introduction(cmd)
	}
	if long == "" {
		long = cmd.Short + "."
	}
	fmt.Fprintf(&b, "# DESCRIPTION\n\n%s\n\n", prose(long))
	if own := ownFlags(cmd); own.HasFlags() {
		b.WriteString("# OPTIONS\n\n")
		own.VisitAll(func(f *pflag.Flag) {
			typed, does := describedFlag(f)
			definition(&b, typed, does)
		})
	}
	if root {
		b.WriteString("# EXIT STATUS\n\n")
		for _, t := range topic("exit-codes") {
			definition(&b, t.word, t.meaning)
		}
		b.WriteString("# ENVIRONMENT\n\n")
		for _, t := range topic("environment") {
			definition(&b, t.word, t.meaning)
		}
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "# EXAMPLES\n\n```\n%s\n```\n\n", dedented(cmd.Example))
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, manName(cmd.Parent()))
	}
	for _, child := range cmd.Commands() {
		if !child.Hidden {
			others = append(others, manName(child))
		}
	}
	fmt.Fprintf(&b, "# SEE ALSO\n\n%s\n", strings.Join(others, ", "))
	if !root {
		b.WriteString("\nThe flags that every command has, the exit codes and the environment are in **chubbyctl(1)**.\n")
	}
	return b.Bytes()
}

func definition(b *bytes.Buffer, word, meaning string) {
	fmt.Fprintf(b, "**%s**\n:   %s\n\n", escaped(word), escaped(meaning))
}

func manName(cmd *cobra.Command) string {
	return "**" + strings.ReplaceAll(cmd.CommandPath(), " ", "-") + "(1)**"
}

// What every command has in common is in topics of help, so that the list of commands is on the first screen.
func TestHelpTopics(t *testing.T) {
	for topic, want := range map[string]string{"exit-codes": "  75             --try: ", "environment": "  CHUBBY_CELLS   where cells are"} {
		out, err := execute(t, nil, "help", topic)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("help %s: %v\n%s", topic, err, out)
		}
		all, err := execute(t, nil, "help")
		if err != nil || strings.Contains(all, want) || !strings.Contains(strings.Join(strings.Fields(all), " "), "chubbyctl help "+topic) {
			t.Errorf("help: %v\n%s", err, all)
		}
	}
	if _, err := execute(t, nil, "help", "nonsense"); exitCode(err) != exitUsage {
		t.Errorf("help nonsense: %v", err)
	}
}
