package helptext

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/spf13/cobra"
	"pgregory.net/rapid"
)

// example is a program with what help may have in it.
func example() *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "Do things that need a few more words to be said than fit a narrow terminal at once"}
	verb := &cobra.Command{
		Use:   "verb PATH... [flags] [-- CMD ARG...]",
		Short: "Do one thing",
		Long: `verb does one thing, and says so in a paragraph of which one line was broken
early, and another one is much longer than what any terminal of the eighties had for it.

It knows:
  WORD     what it means, which is a text that is longer than what is left of a line for it
           and goes on
  OTHER    short
    deeper, but under nothing, and with so many words that eighty columns do not hold them
    again`,
		Example: "  tool verb /a/path/that/is/very/long/and/must/stay/as/it/is/because/somebody/copies/it -- cmd",
		RunE:    func(*cobra.Command, []string) error { return nil },
	}
	verb.Flags().Duration("some-duration", 3*time.Second, "a text of a flag with a default that is not zero, and long enough for three lines at eighty columns, at least if nobody makes it shorter")
	verb.Flags().String("a-flag-whose-name-is-long", "", "what it does for the `OWNER`")
	verb.Flags().BoolP("recursive", "r", false, "short")
	verb.Flags().String("optional", "", "of several\nlines")
	verb.Flags().Lookup("optional").NoOptDefVal = "x y"
	root.PersistentFlags().String("global", "", "a flag of the program, "+strings.Repeat("and again ", 20))
	root.AddCommand(verb)
	return root
}

// No line is wider than the terminal, and no word is lost, whatever the width.
func TestHelpFits(t *testing.T) {
	words := func(text string) []string { return strings.Fields(text) }
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(minWidth, 200).Draw(t, "width")
		for _, args := range [][]string{nil, {"verb"}} {
			cmd, _, err := example().Find(args)
			if err != nil {
				t.Fatal(err)
			}
			got := Of(cmd, width)
			if wide := Of(cmd, 10000); !slices.Equal(words(got), words(wide)) {
				t.Errorf("at %d columns it reads\n%s\nand else\n%s", width, got, wide)
			}
			for line := range strings.Lines(strings.ReplaceAll(got, cmd.Example, "")) {
				line = strings.TrimRight(line, "\n")
				if utf8.RuneCountInString(line) > width && len(words(line)) > 1 {
					t.Errorf("at %d columns there is %q", width, line)
				}
			}
		}
	})
}

// What goes on in the next line is under itself, and examples stay as they are.
func TestHelpAt80(t *testing.T) {
	cmd, _, err := example().Find([]string{"verb"})
	if err != nil {
		t.Fatal(err)
	}
	got := Of(cmd, 80)
	for _, want := range []string{
		"verb does one thing, and says so in a paragraph of which one line was broken\nearly, and another one is much",
		"  WORD     what it means, which is a text that is longer than what is left of a\n           line for it and goes on\n  OTHER    short\n    deeper, but under nothing, and with so many words that eighty columns do not\n    hold them\n    again\n",
		"Examples:\n" + cmd.Example + "\n",
		"      --a-flag-whose-name-is-long OWNER\n                                 what it does for the OWNER\n",
		"  -r, --recursive                short\n",
		"      --optional string[=\"x y\"]  of several lines\n",
		"      --some-duration duration   a text of a flag with a default that is not\n                                 zero,",
		"(default 3s)\n\nGlobal Flags:\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("help lacks\n%s\nit is\n%s", want, got)
		}
	}
}

// Help has the width of the terminal that it is written to, and is 80 columns wide elsewhere.
func TestWidthOfTheTerminal(t *testing.T) {
	person, program, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer person.Close()
	defer program.Close()
	if err := pty.Setsize(person, &pty.Winsize{Rows: 24, Cols: 61}); err != nil {
		t.Fatal(err)
	}
	file, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	for w, want := range map[io.Writer]int{program: 61, file: 0, &bytes.Buffer{}: 0} {
		if got := TerminalWidth(w); got != want {
			t.Errorf("%T has %d columns, want %d", w, got, want)
		}
	}
	for width, want := range map[int]int{0: DefaultWidth, 61: 61, 5: minWidth} {
		for _, args := range [][]string{{"verb", "--help"}, {"help", "verb"}} {
			root := example()
			Install(root, func(io.Writer) int { return width })
			var out bytes.Buffer
			root.SetOut(&out)
			root.SetArgs(args)
			if err := root.Execute(); err != nil {
				t.Fatal(err)
			}
			cmd, _, _ := root.Find(args[:1])
			if args[0] == "help" {
				cmd, _, _ = root.Find(args[1:])
			}
			if out.String() != Of(cmd, want) {
				t.Errorf("%q with a width of %d is\n%s", args, width, out.String())
			}
		}
	}
	root := example()
	Install(root, func(io.Writer) int { return 50 })
	var out bytes.Buffer
	root.SetOut(&out)
	if err := root.Usage(); err != nil || out.String() != usage(root, 50) {
		t.Errorf("%v; usage is\n%s", err, out.String())
	}
}

// Commands are listed under the titles of their groups, those of none first, in one table.
func TestHelpInGroups(t *testing.T) {
	root := &cobra.Command{Use: "tool", Short: "Do things"}
	root.AddGroup(&cobra.Group{ID: "b", Title: "Back"}, &cobra.Group{ID: "a", Title: "And forth"}, &cobra.Group{ID: "empty", Title: "Empty"})
	for name, group := range map[string]string{"alpha": "a", "beta": "b", "a-long-one": "b", "free": ""} {
		root.AddCommand(&cobra.Command{Use: name, Short: "Do " + name, GroupID: group, RunE: func(*cobra.Command, []string) error { return nil }})
	}
	const want = "\nAvailable Commands:\n  free        Do free\n Back:\n  a-long-one  Do a-long-one\n  beta        Do beta\n And forth:\n  alpha       Do alpha\n\n"
	if got := Of(root, 80); !strings.Contains(got, want) {
		t.Errorf("it is\n%s\nwant in it\n%s", got, want)
	}
}
