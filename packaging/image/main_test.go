package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// The archive holds an image for each architecture, with its program and nothing else.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	var programs []string
	for _, architecture := range []string{"amd64", "arm64"} {
		path := filepath.Join(dir, architecture)
		if err := os.WriteFile(path, []byte("program for "+architecture), 0o600); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, architecture+"="+path)
	}
	one, two := filepath.Join(dir, "one.tar"), filepath.Join(dir, "two.tar")
	for _, file := range []string{one, two} {
		if err := write(file, "v1.2.3", programs); err != nil {
			t.Fatal(err)
		}
	}
	a, b := read(t, one), read(t, two)
	if !slices.Equal(a, b) {
		t.Error("the same programs make different archives")
	}
	index, err := layout.ImageIndexFromPath(unpack(t, one))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	outer, err := index.IndexManifest()
	if err != nil || len(outer.Manifests) != 1 || outer.Manifests[0].Annotations["io.containerd.image.name"] != "everynode.io/everynode:v1.2.3" {
		t.Fatalf("the archive names %+v (%v)", outer, err)
	}
	images, err := index.ImageIndex(outer.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := images.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("the image is for %+v (%v)", manifest, err)
	}
	for i, architecture := range []string{"amd64", "arm64"} {
		d := manifest.Manifests[i]
		image, err := images.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		check(t, image, d, architecture)
	}
}

func check(t *testing.T, image v1.Image, d v1.Descriptor, architecture string) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if d.Platform == nil || d.Platform.Architecture != architecture || config.Architecture != architecture || config.OS != "linux" {
		t.Errorf("the image for %s is said to be for %v, and %s", architecture, d.Platform, config.Architecture)
	}
	if config.Config.User != "65532:65532" || fmt.Sprint(config.Config.Entrypoint) != "[/usr/bin/everynode]" || config.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" {
		t.Errorf("the configuration is %+v", config.Config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers (%v)", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var files []string
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, fmt.Sprintf("%s %o %s", h.Name, h.Mode, text))
	}
	if want := []string{"usr/ 755 ", "usr/bin/ 755 ", "usr/bin/everynode 755 program for " + architecture, "tmp/ 1777 "}; !slices.Equal(files, want) {
		t.Errorf("in the image is %q, want %q", files, want)
	}
}

func TestWhatIsNoImage(t *testing.T) {
	for _, program := range []string{"amd64", "amd64=/nowhere"} {
		if err := write(filepath.Join(t.TempDir(), "x.tar"), "v1", []string{program}); err == nil {
			t.Errorf("%q is taken", program)
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// unpack unpacks an archive into a folder.
func unpack(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, content, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
