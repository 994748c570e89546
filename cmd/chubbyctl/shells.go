package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// newCompletionCommand returns the command that prints completion scripts, in place of cobra's, which has other
// help.
func newCompletionCommand() *cobra.Command {
	group := newGroup("completion", "Print what makes a shell complete chubbyctl's commands and paths",
		shellCommand("bash", `bash prints the script. Load it into the running shell, or for every new one (the package
bash-completion has to be installed, which most systems have):`,
			`  source <(chubbyctl completion bash)
  chubbyctl completion bash >/etc/bash_completion.d/chubbyctl    # for everybody
  d=~/.local/share/bash-completion/completions
  mkdir -p $d && chubbyctl completion bash >$d/chubbyctl`,
			generateBash),
		shellCommand("zsh", `zsh prints the script. Load it into the running shell, or for every new one; ~/.zshrc has
to have 'autoload -U compinit; compinit', behind the line that sets fpath:`,
			`  source <(chubbyctl completion zsh)
  chubbyctl completion zsh >/usr/local/share/zsh/site-functions/_chubbyctl
  mkdir -p ~/.zfunc && chubbyctl completion zsh >~/.zfunc/_chubbyctl
  echo 'fpath+=~/.zfunc' >>~/.zshrc    # before compinit`,
			func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) }),
		shellCommand("fish", `fish prints the script. Load it into the running shell, or for every new one:`,
			`  chubbyctl completion fish | source
  chubbyctl completion fish >~/.config/fish/completions/chubbyctl.fish`,
			func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }),
		shellCommand("powershell", `powershell prints the script. Load it into the running shell, or have your profile do so
for every new one:`,
			`  chubbyctl completion powershell | Out-String | Invoke-Expression`,
			func(root *cobra.Command, w io.Writer) error { return root.GenPowerShellCompletionWithDesc(w) }),
	)
	group.Long = fmt.Sprintf(`completion prints a script with which a shell completes commands, flags, their values,
and the paths, sessions and lists of the live cell. Tab asks the cell as any command
does, with the flags on the line; if it does not answer within %v, nothing is
offered.`, completionBound)
	return group
}

// cobra's script escapes a candidate only if it is the only one. Of several it inserts the common prefix
// unescaped, so that a directory with a space would become two arguments.
const (
	bashEscapesOne = `        if (( ${#COMPREPLY[@]} == 1 )); then
            COMPREPLY[0]=$(printf "%q" "${COMPREPLY[0]}")
        fi
`
	bashEscapesAll = `        if (( ${#COMPREPLY[@]} > 0 )); then
            IFS=$'\n' read -ra COMPREPLY -d '' < <(printf "%q\n" "${COMPREPLY[@]}")
        fi
`
)

// cobra's bash script evaluates the line's words, for quotes and variables, and so would run a half-typed
// command substitution. For such a line nothing is offered: ":4" says so, and excludes files. (zsh itself
// expands the line at Tab, before any script.)
const (
	bashEvaluates = `    out=$(eval "${requestComp}" 2>/dev/null)
`
	runsCommand = `    if [[ "${requestComp}" == *'$('* || "${requestComp}" == *'` + "`" + `'* || "${requestComp}" == *'${ '* || "${requestComp}" == *[\<\>=]'('* ]]; then
        out=':4'
    else
    %s    fi
`
)

func generateBash(root *cobra.Command, w io.Writer) error {
	var script bytes.Buffer
	err := root.GenBashCompletionV2(&script, true)
	return errors.Join(err, replaceInScript(w, script.String(), bashEscapesOne, bashEscapesAll, bashEvaluates, fmt.Sprintf(runsCommand, bashEvaluates)))
}

// replaceInScript writes a script with some parts replaced: parts alternates old and new.
func replaceInScript(w io.Writer, script string, parts ...string) error {
	for i := 0; i < len(parts); i += 2 {
		if !strings.Contains(script, parts[i]) {
			return errors.New("the completion script is not the one that this program mends") // cobra's has changed
		}
		script = strings.Replace(script, parts[i], parts[i+1], 1)
	}
	_, err := io.WriteString(w, script)
	return err
}

func shellCommand(shell, how, example string, generate func(*cobra.Command, io.Writer) error) *cobra.Command {
	return &cobra.Command{
		Use:     shell,
		Short:   "Print the completion script for " + shell,
		Long:    how,
		Example: example,
		RunE:    func(cmd *cobra.Command, _ []string) error { return generate(cmd.Root(), cmd.OutOrStdout()) },
	}
}
