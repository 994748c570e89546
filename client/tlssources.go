package client

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// tlsFiles returns the certificates for a cell: from the variables CHUBBY_CACERT, CHUBBY_CERT and
// CHUBBY_KEY if one of them is set, else from the cell's entry in the file of cells.
func (s sources) tlsFiles(cell string) (TLSFiles, error) {
	named := TLSFiles{CA: s.getenv("CHUBBY_CACERT"), Cert: s.getenv("CHUBBY_CERT"), Key: s.getenv("CHUBBY_KEY")}
	if named != (TLSFiles{}) {
		return named, nil
	}
	path, byVariable := s.cellsFile()
	if path == "" {
		return TLSFiles{}, nil
	}
	text, err := s.readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return TLSFiles{}, nil // if CHUBBY_CONFIG names it, servers says so
	}
	if err != nil {
		return TLSFiles{}, unreadableCells(path, byVariable, err)
	}
	entry, _, err := parseFile(text, cell)
	if err != nil {
		return TLSFiles{}, malformedCells(path, err)
	}
	return entry.files(filepath.Dir(path)), nil
}

// files returns the certificates of an entry. Names are relative to the directory of the file of cells.
func (e cellEntry) files(dir string) TLSFiles {
	in := func(name string) string {
		if name == "" || filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, name)
	}
	return TLSFiles{CA: in(e.CA), Cert: in(e.Cert), Key: in(e.Key)}
}

// checkComplete returns an error if an entry names some certificates and not all that are needed.
func (e cellEntry) checkComplete(cell string) error {
	if (e.CA == "") != (e.Cert == "") || (e.Cert == "") != (e.Key == "") {
		return fmt.Errorf("cell %s: cacert, cert and key are needed together", cell)
	}
	return nil
}
