package backup

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Write writes a backup: the manifest, and the parts that it names, which open returns.
// A part that is not as the manifest says is an error.
func Write(w io.Writer, l Lock, m Manifest, open func(name string) (io.Reader, error)) error {
	sealed, err := l.seal(w)
	if err != nil {
		return err
	}
	compressed, err := gzip.NewWriterLevel(sealed, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	if err := writeParts(archive, m, open); err != nil {
		return err
	}
	return errors.Join(archive.Close(), compressed.Close(), sealed.Close())
}

func writeParts(archive *tar.Writer, m Manifest, open func(name string) (io.Reader, error)) error {
	m.Format = Format
	content, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the backup's manifest: %w", err)
	}
	if err := archive.WriteHeader(tarHeader(m, manifestName, int64(len(content)))); err != nil {
		return err
	}
	if _, err := archive.Write(content); err != nil {
		return err
	}
	for _, f := range m.Files {
		part, err := open(f.Name)
		if err == nil {
			err = archive.WriteHeader(tarHeader(m, f.Name, f.Size))
		}
		if err == nil {
			// One byte more than there should be is noticed.
			_, err = io.Copy(archive, part)
		}
		if err != nil {
			return fmt.Errorf("write %s into the backup: %w", f.Name, err)
		}
	}
	return nil
}

func tarHeader(m Manifest, name string, size int64) *tar.Header {
	return &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     name,
		Size:     size,
		Mode:     0o600,
		ModTime:  m.Created,
		Format:   tar.FormatPAX,
	}
}
