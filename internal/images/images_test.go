package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

func programs() fstest.MapFS {
	return fstest.MapFS{
		"embedded/pause": {Data: []byte("pause program")},
		"embedded/demo":  {Data: []byte("demo program")},
	}
}

func TestLoadWithoutPrograms(t *testing.T) {
	for _, missing := range []string{"embedded/pause", "embedded/demo"} {
		files := programs()
		delete(files, missing)
		if _, err := load(files); !errors.Is(err, ErrNotBuilt) {
			t.Errorf("without %s: got %v, want ErrNotBuilt", missing, err)
		}
	}
}

func TestArchiveIsReproducible(t *testing.T) {
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		archive, err := load(programs())
		if err != nil {
			t.Fatal(err)
		}
		if n, err := archive.WriteTo(b); err != nil || n != int64(b.Len()) {
			t.Fatalf("WriteTo said %d bytes, %v; wrote %d", n, err, b.Len())
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of the same programs differ")
	}
}

func TestArchiveIsAValidLayoutWithItsImages(t *testing.T) {
	archive, err := load(programs())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := archive.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	unpack(t, &b, dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	digests, err := archive.Digests()
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{Pause: "", DemoV1: "VERSION=v1", DemoV2: "VERSION=v2"}
	if len(manifest.Manifests) != len(versions) {
		t.Fatalf("%d images in the index, want %d", len(manifest.Manifests), len(versions))
	}
	for _, d := range manifest.Manifests {
		name := d.Annotations["io.containerd.image.name"]
		want, known := versions[name]
		if !known || digests[name] != d.Digest.String() {
			t.Errorf("image %q has digest %s, Digests says %q", name, d.Digest, digests[name])
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if want != "" && config.Config.Env[len(config.Config.Env)-1] != want {
			t.Errorf("image %s has environment %v, want %s", name, config.Config.Env, want)
		}
	}
}

func TestContains(t *testing.T) {
	want := map[string]string{"a": "1"}
	for _, tc := range []struct {
		name string
		have map[string]string
		is   bool
	}{
		{"same and more", map[string]string{"a": "1", "b": "2"}, true},
		{"other content", map[string]string{"a": "2"}, false},
		{"missing", map[string]string{"b": "1"}, false},
	} {
		if got := contains(tc.have, want); got != tc.is {
			t.Errorf("%s: got %v", tc.name, got)
		}
	}
}

func unpack(t *testing.T, archive io.Reader, dir string) {
	t.Helper()
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
