// Package helptext writes the help of a program's commands so that it fits the terminal: no line is wider, and
// what goes on in the next line begins under itself. The text is that of the commands as they were made, so that
// pages which are generated of it are the same everywhere. It knows nothing of what the commands do; main
// packages call it once, when they have put their commands together.
package helptext

import (
	"cmp"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

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

// Output is a file to which a program writes its answers. It notes the first write that fails: cobra's help and version have
// no error. Its methods may be called by several goroutines at a time.
type Output struct {
	file *os.File

	mu     sync.Mutex // guards failed
	failed error
}

// NewOutput returns an output to a file, which it does not close.
func NewOutput(file *os.File) *Output { return &Output{file: file} }

// Write writes to the file.
func (o *Output) Write(text []byte) (int, error) {
	n, err := o.file.Write(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = cmp.Or(o.failed, err)
	return n, err
}

// Fd returns the descriptor of the file, of which TerminalWidth asks.
func (o *Output) Fd() uintptr { return o.file.Fd() }

// Failure returns the error of the first write that has failed; nil if none has.
func (o *Output) Failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// row is a line of a table in help: a word with its indentation, and what is said of it.
type row struct{ word, text string }

// gap is how many spaces there are at least between a word and its text.
const gap = 2

// table writes rows with their texts under each other. A word that is wider than most of its half of the line has its text
// below itself.
func table(rows []row, width int) string {
	most := width * 9 / 20
	column := 0
	for _, r := range rows {
		if n := utf8.RuneCountInString(r.word) + gap; n <= most {
			column = max(column, n)
		}
	}
	if column == 0 {
		column = most / 2
	}
	var b strings.Builder
	for _, r := range rows {
		first := r.word
		if r.text == "" { // a title
			b.WriteString(first + "\n")
			continue
		}
		if n := utf8.RuneCountInString(first) + gap; n <= column {
			first += strings.Repeat(" ", column-n+gap)
		} else {
			b.WriteString(first + "\n")
			first = strings.Repeat(" ", column)
		}
		b.WriteString(wrap(first, r.text, column, width))
	}
	return b.String()
}

// prose writes paragraphs. Lines are one text until an empty one, or one that begins with a space or a tab. That is a line of its own:
// a word, at least two spaces, and what it means, which goes on in lines that begin under it; or anything, which is broken if
// it does not fit.
func prose(text string, width int) string {
	var b strings.Builder
	var first string // of what is open: a line up to what it means, "" in a paragraph
	var open []string
	flush := func() {
		if len(open) > 0 {
			b.WriteString(wrap(first, strings.Join(open, " "), utf8.RuneCountInString(first), width))
		}
		first, open = "", nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		body := strings.TrimLeft(line, " \t")
		indent := len(line) - len(body)
		switch {
		case body == "":
			flush()
			b.WriteString("\n")
		case indent == 0 && first == "", indent > 0 && indent == utf8.RuneCountInString(first):
			open = append(open, body)
		case indent == 0:
			flush()
			open = append(open, body)
		default:
			flush()
			_, meaning, found := strings.Cut(body, "  ")
			if found {
				body = strings.TrimLeft(meaning, " ")
			}
			if first, open = strings.TrimSuffix(line, body), []string{body}; !found {
				flush()
			}
		}
	}
	flush()
	return b.String()
}

// wrap breaks a text between words so that no line is wider than width, unless one word is. The first line begins with first, and
// the others with so many spaces.
func wrap(first, text string, indent, width int) string {
	var b strings.Builder
	b.WriteString(first)
	at, begun := utf8.RuneCountInString(first), false
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case !begun:
		case at+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at, begun = at+n, true
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}
