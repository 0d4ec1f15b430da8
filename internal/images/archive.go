package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Archive is a set of named images of this binary.
type Archive struct {
	images []named
}

type named struct {
	name  string
	image v1.Image
}

// demoNames are the names that the demo program goes by in its image, besides
// its own, so that `kubectl exec POD -- cat FILE` works without a shell.
var demoNames = []string{"cat", "echo", "env", "false", "get", "ls", "resolve", "rm", "sleep", "tar", "test", "true",
	"version", "write"}

// Load makes the archive of the images in this binary, or returns ErrNotBuilt.
func Load() (*Archive, error) { return load(embedded) }

func load(files fs.FS) (*Archive, error) {
	pause, err := program(files, "pause")
	if err != nil {
		return nil, err
	}
	demo, err := program(files, "demo")
	if err != nil {
		return nil, err
	}
	pauseLayer, err := layer([]entry{{name: "pause", content: pause, mode: 0o755}})
	if err != nil {
		return nil, err
	}
	demoEntries := []entry{
		{name: "bin/", mode: 0o755}, {name: "tmp/", mode: 0o1777},
		{name: "bin/demo", content: demo, mode: 0o755},
	}
	for _, name := range demoNames {
		demoEntries = append(demoEntries, entry{name: "bin/" + name, link: "demo", mode: 0o777})
	}
	demoLayer, err := layer(demoEntries)
	if err != nil {
		return nil, err
	}
	archive := &Archive{}
	for _, want := range []struct {
		name   string
		layer  v1.Layer
		config v1.Config
	}{
		{Pause, pauseLayer, v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"}},
		{DemoV1, demoLayer, demoConfig("v1")},
		{DemoV2, demoLayer, demoConfig("v2")},
	} {
		image, err := build(want.layer, want.config)
		if err != nil {
			return nil, fmt.Errorf("build image %s: %w", want.name, err)
		}
		archive.images = append(archive.images, named{want.name, image})
	}
	return archive, nil
}

func demoConfig(version string) v1.Config {
	return v1.Config{
		Entrypoint: []string{"/bin/demo"},
		Cmd:        []string{"http"},
		Env:        []string{"PATH=/bin", "VERSION=" + version},
		WorkingDir: "/",
	}
}

// entry is one file (content), folder (name ends in a slash) or symbolic link.
type entry struct {
	name    string
	content []byte
	link    string
	mode    int64
}

// layer is an uncompressed layer: it never leaves the machine, and gzip would
// take longer than everything else together. Nothing in it depends on when or
// by whom it is made.
func layer(entries []entry) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), Format: tar.FormatUSTAR}
		switch {
		case e.link != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
		case e.name[len(e.name)-1] == '/':
			header.Typeflag = tar.TypeDir
		default:
			header.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("write layer entry %s: %w", e.name, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("write layer entry %s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write layer: %w", err)
	}
	return static.NewLayer(b.Bytes(), types.OCIUncompressedLayer), nil
}

func build(content v1.Layer, config v1.Config) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, content)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, config
	return mutate.ConfigFile(image, file)
}

// Image returns the image of that name, nil if there is none.
func (a *Archive) Image(name string) v1.Image {
	for _, n := range a.images {
		if n.name == name {
			return n.image
		}
	}
	return nil
}

// Digests returns each image's name and the digest of its manifest.
func (a *Archive) Digests() (map[string]string, error) {
	digests := make(map[string]string, len(a.images))
	for _, n := range a.images {
		digest, err := n.image.Digest()
		if err != nil {
			return nil, fmt.Errorf("digest of image %s: %w", n.name, err)
		}
		digests[n.name] = digest.String()
	}
	return digests, nil
}

// WriteTo writes the images as a tar of an OCI image layout.
func (a *Archive) WriteTo(out io.Writer) (int64, error) {
	counted := &counter{out: out}
	w := layoutWriter{tar: tar.NewWriter(counted), written: map[string]bool{}}
	if err := w.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return counted.n, err
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for _, n := range a.images {
		descriptor, err := w.image(n.image)
		if err != nil {
			return counted.n, fmt.Errorf("archive image %s: %w", n.name, err)
		}
		descriptor.Annotations = map[string]string{"io.containerd.image.name": n.name}
		index.Manifests = append(index.Manifests, descriptor)
	}
	raw, err := json.Marshal(index)
	if err != nil {
		return counted.n, fmt.Errorf("encode image index: %w", err)
	}
	if err := w.file("index.json", raw); err != nil {
		return counted.n, err
	}
	return counted.n, w.tar.Close()
}

type counter struct {
	out io.Writer
	n   int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	c.n += int64(n)
	return n, err
}

// layoutWriter writes blobs once, however many images share them.
type layoutWriter struct {
	tar     *tar.Writer
	written map[string]bool
}

func (w layoutWriter) file(name string, content []byte) error {
	if w.written[name] {
		return nil
	}
	w.written[name] = true
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)),
		Format: tar.FormatUSTAR}
	if err := w.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("write archive entry %s: %w", name, err)
	}
	if _, err := w.tar.Write(content); err != nil {
		return fmt.Errorf("write archive entry %s: %w", name, err)
	}
	return nil
}

func (w layoutWriter) blob(digest v1.Hash, content []byte) error {
	return w.file("blobs/"+digest.Algorithm+"/"+digest.Hex, content)
}

// image writes the blobs of one image and returns its manifest's descriptor.
func (w layoutWriter) image(image v1.Image) (v1.Descriptor, error) {
	layers, err := image.Layers()
	if err != nil {
		return v1.Descriptor{}, err
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return v1.Descriptor{}, err
		}
		reader, err := l.Compressed()
		if err != nil {
			return v1.Descriptor{}, err
		}
		content, err := io.ReadAll(reader)
		_ = reader.Close()
		if err != nil {
			return v1.Descriptor{}, err
		}
		if err := w.blob(digest, content); err != nil {
			return v1.Descriptor{}, err
		}
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return v1.Descriptor{}, err
	}
	configDigest, err := image.ConfigName()
	if err != nil {
		return v1.Descriptor{}, err
	}
	if err := w.blob(configDigest, config); err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return v1.Descriptor{}, err
	}
	digest, err := image.Digest()
	if err != nil {
		return v1.Descriptor{}, err
	}
	descriptor := v1.Descriptor{
		MediaType: types.OCIManifestSchema1, Size: int64(len(manifest)), Digest: digest,
		Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
	}
	return descriptor, w.blob(digest, manifest)
}
