// image writes an image with everynode in it, for each architecture that is given, as one
// archive in the OCI layout. No container engine is needed. The same programs make the
// same bytes.
//
//	go run ./packaging/image -version v0.1.0 -o image.tar amd64=PROGRAM arm64=PROGRAM
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	version := flag.String("version", "", "version of the programs, and tag of the image")
	out := flag.String("o", "", "the archive")
	flag.Parse()
	if *version == "" || *out == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: image -version VERSION -o FILE ARCHITECTURE=PROGRAM...")
		os.Exit(2)
	}
	if err := write(*out, *version, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// name is what the image is called where nobody calls it otherwise.
const name = "everynode.io/everynode"

func write(file, version string, programs []string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		architecture, path, ok := strings.Cut(p, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCHITECTURE=PROGRAM", p)
		}
		image, err := build(architecture, path, version)
		if err != nil {
			return fmt.Errorf("make the image for %s: %w", architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	dir, err := os.MkdirTemp("", "everynode-image-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
			"io.containerd.image.name": name + ":" + version, "org.opencontainers.image.ref.name": version,
		}))
	}
	if err == nil {
		err = pack(file, dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// build makes the image of one program: nothing else is in it.
func build(architecture, path, version string) (v1.Image, error) {
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: "usr/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "usr/bin/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "usr/bin/everynode", Mode: 0o755, Size: int64(len(program))},
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777},
	} {
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if h.Size > 0 {
			if _, err := w.Write(program); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer),
	)
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(
		mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1),
		mutate.Addendum{Layer: layer},
	)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, configured(image, architecture, version))
}

// configured is the image's configuration; nobody in it is root.
func configured(image v1.Image, architecture, version string) *v1.ConfigFile {
	file, err := image.ConfigFile()
	if err != nil {
		file = &v1.ConfigFile{}
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", architecture
	file.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/everynode"}, User: "65532:65532", WorkingDir: "/tmp",
		Env: []string{"PATH=/usr/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "everynode", "org.opencontainers.image.version": version,
			"org.opencontainers.image.source":   "https://github.com/everynode/everynode",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return file
}

// pack writes a folder as an archive, without times and owners.
func pack(file, dir string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: relative + "/", Mode: 0o755})
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: relative, Mode: 0o644,
			Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}
