package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/chubbylock/chubby/internal/durable"
)

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
			f.mode = about.Mode().Perm()
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
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&f.text), encoder.Close()); err != nil {
		return err
	}
	if err := yaml.Unmarshal(text.Bytes(), &yaml.Node{}); err != nil {
		return usagef("another entry refers to this one: %v. Nothing was changed", err)
	}
	free, err := f.lock()
	if err != nil {
		return err
	}
	return errors.Join(replaceSettings(f.path, text.Bytes(), f.mode), free())
}

// lock prevents others from replacing the file, and fails if it has changed since it was read.
func (f *cellsFile) lock() (free func() error, err error) {
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
