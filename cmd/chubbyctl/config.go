package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/durable"
)

func useCellVerb(g *globals, cmd *cobra.Command, args []string) error {
	if err := checkUsable(args[0], client.ConfiguredCells()); err != nil {
		return err
	}
	path, err := writePreferences(preferences{Cell: args[0]})
	if err != nil {
		return fmt.Errorf("keep the default cell: %w", err)
	}
	if named := os.Getenv("CHUBBY_CELL"); named != "" && named != args[0] {
		g.notice(cmd.ErrOrStderr(), fmt.Sprintf("CHUBBY_CELL is set to %s, which counts before it", named))
	}
	return printChosenCell(g, cmd, chosenCell{args[0], path})
}

// checkUsable rejects a mistyped cell: others are configured, and it is not.
func checkUsable(cell string, configured []string) error {
	switch {
	case !api.ValidCell(cell):
		return usagef("%q is not a cell's name: want letters, digits, '-', '_' and '.'", cell)
	case cell == api.LocalCell, len(configured) == 0, slices.Contains(configured, cell), os.Getenv("CHUBBY_DOMAIN") != "":
		return nil
	}
	return usagef("%s is not configured; CHUBBY_CELLS and the file of cells name %s. Nothing was changed", cell, strings.Join(configured, ", "))
}

// printChosenCell prints only the name, for scripts; -v adds the reason.
func printChosenCell(g *globals, cmd *cobra.Command, chosen chosenCell) error {
	if g.verbose && chosen.By != "" && !g.json() {
		term.Remark(cmd.ErrOrStderr(), "chosen by %s", chosen.By)
	}
	return g.output.Say(cmd.OutOrStdout(), chosen, "%s", chosen.Cell)
}

func currentCellVerb(g *globals, cmd *cobra.Command, _ []string) error {
	chosen, err := g.chooseCell()
	if err != nil {
		return err
	}
	return printChosenCell(g, cmd, chosen)
}

func cellsVerb(g *globals, cmd *cobra.Command, _ []string) error {
	ctx, cancel := g.withTimeout(cmd.Context())
	defer cancel()
	chosen, err := g.defaultCell()
	if err != nil {
		return err
	}
	servers := map[string][]string{chosen: g.servers}
	names := append(client.ConfiguredCells(), chosen)
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		if len(servers[name]) == 0 {
			if servers[name], err = client.Servers(ctx, name); err != nil {
				return err
			}
		}
	}
	list := term.List[string]{
		Fields: func(name string) term.Fields {
			return term.Fields{"cell", name, "default", name == chosen, "servers", servers[name]}
		},
		Add: func(t *term.Table, name string) {
			t.Add(name, map[bool]string{true: "default"}[name == chosen], strings.Join(servers[name], ","))
		},
		Columns: []string{"CELL", "DEFAULT", "SERVERS"},
	}
	return list.PrintAll(cmd.OutOrStdout(), g.output, names)
}

// addCellVerb adds a cell to the file of cells, if clients could use the entry.
func addCellVerb(g *globals, cmd *cobra.Command) {
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := args[0]
		if len(g.servers) > 0 {
			return usagef("the servers of %s follow its name; --servers is for commands that ask a cell", name)
		}
		cell := configuredCell{Servers: strings.Split(strings.Join(args[1:], ","), ",")}
		var err error
		for kept, given := range map[*string]string{&cell.CA: g.tls.CA, &cell.Cert: g.tls.Cert, &cell.Key: g.tls.Key, &cell.Token: g.tokenFile} {
			if given != "" {
				if *kept, err = filepath.Abs(given); err != nil {
					return err
				}
			}
		}
		if !api.ValidCell(name) {
			return usagef("%q is not a cell's name: want letters, digits, '-', '_' and '.'", name)
		}
		if known := cell.Cert != "" || cell.Token != ""; known != (cell.CA != "") {
			return usagef("--cacert, and --cert with --key or else --token-file, are needed together")
		}
		cfg := g.config(name)
		cfg.Servers = cell.Servers
		c, err := client.Dial(cmd.Context(), cfg) // without a call
		if errors.Is(err, api.InvalidArgument) {
			return usagef("%v. Nothing was changed", err)
		}
		if err == nil {
			err = c.Close()
		}
		if err != nil {
			return err
		}
		file, err := readCellsFile()
		if err != nil {
			return err
		}
		switch had, found, err := file.get(name); {
		case err != nil:
			return err
		case found && reflect.DeepEqual(had, cell):
		case found:
			return usagef("%s is in %s already, with the servers %s. Nothing was changed; 'chubbyctl config remove-cell %s' removes it", name, file.path, strings.Join(had.Servers, ","), name)
		default:
			if err := file.add(name, cell); err != nil {
				return fmt.Errorf("add %s to %s: %w", name, file.path, err)
			}
		}
		return printCellChange(g, cmd, "is in", name, file.path)
	}
}

func removeCellVerb(g *globals, cmd *cobra.Command, args []string) error {
	file, err := readCellsFile()
	if err != nil {
		return err
	}
	at := file.find(args[0])
	if at < 0 {
		return usagef("%s is not in %s; see 'chubbyctl config cells'", args[0], file.path)
	}
	if err := file.remove(at); err != nil {
		return fmt.Errorf("remove %s from %s: %w", args[0], file.path, err)
	}
	return printCellChange(g, cmd, "is no longer in", args[0], file.path)
}

func printCellChange(g *globals, cmd *cobra.Command, done, cell, file string) error {
	if names := strings.Split(";"+os.Getenv("CHUBBY_CELLS"), ";"); slices.ContainsFunc(names, func(entry string) bool { return strings.HasPrefix(strings.TrimSpace(entry), cell+"=") }) {
		g.notice(cmd.ErrOrStderr(), fmt.Sprintf("CHUBBY_CELLS names %s, too, and counts before the file", cell))
	}
	return g.output.Say(cmd.OutOrStdout(), map[string]string{"cell": cell, "file": file}, "%s %s %s", cell, done, term.Printable(file))
}

// configuredCell is an entry of the file of cells, in the clients' format.
type configuredCell struct {
	Servers []string `yaml:"servers,flow"`
	CA      string   `yaml:"cacert,omitempty"`
	Cert    string   `yaml:"cert,omitempty"`
	Key     string   `yaml:"key,omitempty"`
	Token   string   `yaml:"token-file,omitempty"`
}

// cellsFile is the file of cells; its comments survive changes.
type cellsFile struct {
	path string
	mode fs.FileMode
	read []byte    // as read
	text yaml.Node // the document
}

// readCellsFile reads the file named by CHUBBY_CONFIG, else ~/.config/chubby/cells.yaml. A missing file is
// empty.
func readCellsFile() (*cellsFile, error) {
	path := os.Getenv("CHUBBY_CONFIG")
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("there is nowhere to keep cells: %w; name a file by CHUBBY_CONFIG", err)
		}
		path = filepath.Join(home, ".config", "chubby", "cells.yaml")
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link stays one
	}
	f := &cellsFile{path: path, mode: 0o644}
	text, err := os.ReadFile(path)
	f.read = text
	if err == nil {
		var about fs.FileInfo
		if about, err = os.Stat(path); err == nil {
			f.mode = about.Mode()
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("the file of cells cannot be read: %v", err)
	}
	if err := yaml.Unmarshal(text, &f.text); err != nil || f.text.Kind != 0 && f.cells().Kind != yaml.MappingNode {
		return nil, usagef(`the file of cells %s is malformed; want "foo: {servers: [h1:7421, h2:7421]}". Nothing was changed`, path)
	}
	if f.text.Kind == 0 { // it is empty, or has only comments, which then come first
		f.text = yaml.Node{Kind: yaml.DocumentNode, HeadComment: string(bytes.TrimSpace(text)), Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	return f, nil
}

func (f *cellsFile) cells() *yaml.Node { return f.text.Content[0] }

// find returns the index of a cell's name in the mapping, followed by its entry; or -1.
func (f *cellsFile) find(name string) int {
	for i := 0; i+1 < len(f.cells().Content); i += 2 {
		if f.cells().Content[i].Value == name {
			return i
		}
	}
	return -1
}

func (f *cellsFile) get(name string) (cell configuredCell, found bool, err error) {
	i := f.find(name)
	if i < 0 {
		return cell, false, nil
	}
	if err := f.cells().Content[i+1].Decode(&cell); err != nil {
		return cell, true, usagef("the entry of %s in %s is malformed: %v. Nothing was changed", name, f.path, err)
	}
	return cell, true, nil
}

func (f *cellsFile) add(name string, cell configuredCell) error {
	entry := &yaml.Node{}
	if err := entry.Encode(cell); err != nil {
		return err
	}
	entry.Style = yaml.FlowStyle
	f.cells().Style = 0 // {} is no style for people
	f.cells().Content = append(f.cells().Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name, Tag: "!!str"}, entry)
	return f.write()
}

func (f *cellsFile) remove(at int) error {
	f.cells().Content = append(f.cells().Content[:at], f.cells().Content[at+2:]...)
	return f.write()
}

func (f *cellsFile) write() error {
	if !f.mode.IsRegular() { // to replace /dev/null would take it from all programs
		return usagef("the file of cells %s is not a regular file, and cannot be changed; name another by CHUBBY_CONFIG", f.path)
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&f.text), encoder.Close()); err != nil {
		return err
	}
	if err := yaml.Unmarshal(text.Bytes(), &yaml.Node{}); err != nil {
		return usagef("another entry refers to this one: %v. Nothing was changed", err)
	}
	free, err := f.claim()
	if err != nil {
		return err
	}
	return errors.Join(replaceSettings(f.path, text.Bytes(), f.mode.Perm()), free())
}

// claim prevents others from replacing the file, and fails if it has changed since it was read.
func (f *cellsFile) claim() (free func() error, err error) {
	dir := filepath.Dir(f.path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	d, err := os.Open(dir) // not the file, which is replaced
	if err != nil {
		return nil, err
	}
	locked := durable.Lock(d)
	now, err := os.ReadFile(f.path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
	case locked != nil && !errors.Is(locked, errors.ErrUnsupported), !bytes.Equal(now, f.read):
		err = errors.New("another program is changing the file. Nothing was changed; run this again")
	default:
		return d.Close, nil
	}
	return nil, errors.Join(err, d.Close())
}

// replaceSettings replaces or creates a file, and its directory: after a crash it is the old one or the new
// one.
func replaceSettings(path string, text []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Concurrent writers use different temporary files.
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return durable.SyncDir(dir)
}
