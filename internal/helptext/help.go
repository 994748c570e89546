package helptext

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// DefaultWidth is how many columns help has where there is no terminal, or its width is not known.
const DefaultWidth = 80

// minWidth is the narrowest terminal that help is broken for; a narrower one breaks the lines itself.
const minWidth = 40

// TerminalWidth returns how many columns the terminal w has; 0 if it is none, or that is not known.
func TerminalWidth(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Install has root and the commands below it write their help and usage for the width of what it is written to, in columns: 0
// stands for DefaultWidth. It is to be called before the commands are executed. Cobra's help has no error: a program whose help
// may not be cut off has it written to an Output.
func Install(root *cobra.Command, width func(io.Writer) int) {
	columns := func(w io.Writer) int {
		if n := width(w); n > 0 {
			return max(n, minWidth)
		}
		return DefaultWidth
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		w := cmd.OutOrStdout()
		_, _ = io.WriteString(w, Of(cmd, columns(w)))
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		w := cmd.OutOrStderr()
		_, err := io.WriteString(w, usage(cmd, columns(w)))
		return err
	})
}

// Of returns the help of a command for so many columns.
func Of(cmd *cobra.Command, width int) string {
	about := strings.TrimSpace(cmd.Long)
	if about == "" {
		about = cmd.Short
	}
	return prose(about, width) + "\n" + usage(cmd, width)
}

// usage returns how a command is typed, with examples, and the commands and flags that it has.
func usage(cmd *cobra.Command, width int) string {
	var b strings.Builder
	typed := func(line string) string { return wrap("  ", line, 6, width) }
	b.WriteString("Usage:\n")
	if cmd.Runnable() {
		b.WriteString(typed(cmd.UseLine()))
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString(typed(cmd.CommandPath() + " [command]"))
	}
	section := func(name, text string) {
		if text = strings.TrimRight(text, " \n"); text != "" {
			b.WriteString("\n" + name + ":\n" + text + "\n")
		}
	}
	section("Examples", cmd.Example) // as they are: they are to be pasted
	section("Available Commands", table(commands(cmd), width))
	section("Flags", table(flags(cmd.LocalFlags().FlagUsages()), width))
	section("Global Flags", table(flags(cmd.InheritedFlags().FlagUsages()), width))
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\n" + wrap("", `Use "`+cmd.CommandPath()+` [command] --help" for more information about a command.`, 0, width))
	}
	return b.String()
}

// commands lists what is below a command: what is in no group first, and then each group under its title.
func commands(cmd *cobra.Command) []row {
	var rows []row
	for _, group := range append([]*cobra.Group{{}}, cmd.Groups()...) {
		var in []row
		for _, child := range cmd.Commands() {
			if child.GroupID == group.ID && (child.IsAvailableCommand() || child.Name() == "help") {
				in = append(in, row{"  " + child.Name(), child.Short})
			}
		}
		if len(in) > 0 && group.Title != "" {
			rows = append(rows, row{" " + group.Title + ":", ""})
		}
		rows = append(rows, in...)
	}
	return rows
}

// flags takes apart what pflag says of flags, one in a line: the words that are typed, and behind at least two spaces what they do.
func flags(usages string) []row {
	var rows []row
	for line := range strings.Lines(usages) {
		line = strings.TrimRight(line, "\n")
		begin := len(line) - len(strings.TrimLeft(line, " "))
		word, text, found := strings.Cut(line[begin:], "  ")
		if !strings.HasPrefix(word, "-") && len(rows) > 0 { // a description of several lines
			rows[len(rows)-1].text += " " + strings.TrimSpace(line)
			continue
		}
		if !found {
			text = ""
		}
		rows = append(rows, row{line[:begin] + word, strings.TrimSpace(text)})
	}
	return rows
}
