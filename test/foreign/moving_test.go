package foreign

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// moving is a registry with the repository daemon. Each tag but broken names other bits every time that somebody has
// asked for it: whoever asks twice, gets two.
type movingRegistry struct {
	t      *testing.T
	host   string
	inner  http.Handler
	binary v1.Layer

	mu sync.Mutex
	// bits are those of each digest, asked the machines that asked for each tag.
	bits  map[string]string
	asked map[string][]string
	count int
}

// newMovingRegistry serves at an address of this machine until the test ends.
func newMovingRegistry(t *testing.T, address string) *movingRegistry {
	t.Helper()
	r := &movingRegistry{t: t, inner: registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		bits: map[string]string{}, asked: map[string][]string{}}
	r.binary = r.program()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	r.host = l.Addr().String()
	server, ended := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}, make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		err := server.Close()
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) || err != nil {
			t.Errorf("the registry ended with: %v, %v", served, err)
		}
	})
	r.push("broken", "broken")
	return r
}

// image is what a DaemonSet names.
func (r *movingRegistry) image(tag string) string { return r.host + "/daemon:" + tag }

func (r *movingRegistry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	tag, found := strings.CutPrefix(q.URL.Path, "/v2/daemon/manifests/")
	found = found && !strings.Contains(tag, ":") && tag != "broken"
	if found {
		r.mu.Lock()
		defer r.mu.Unlock() // nobody else gets the same bits by this tag
		r.moves(tag)
		from, _, _ := net.SplitHostPort(q.RemoteAddr)
		r.asked[tag] = append(r.asked[tag], from)
	}
	r.inner.ServeHTTP(w, q)
}

// moves has a tag name bits that nobody has had. The caller holds mu.
func (r *movingRegistry) moves(tag string) {
	r.count++
	r.push(tag, fmt.Sprintf("%s %d", tag, r.count))
}

// who are the machines that asked for a tag.
func (r *movingRegistry) who(tag string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(r.asked[tag])))
}

// bitsOf are the bits with a digest.
func (r *movingRegistry) bitsOf(digest string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	bits, known := r.bits[digest]
	if !known {
		return "", fmt.Errorf("the registry never had %s, but %v", digest, slices.Collect(maps.Keys(r.bits)))
	}
	return bits, nil
}

// digestOf is the digest of bits, "none" if the registry never had them.
func (r *movingRegistry) digestOf(bits string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for digest, is := range r.bits {
		if is == bits {
			return digest
		}
	}
	return "none"
}

// push puts an image into the registry.
func (r *movingRegistry) push(tag, bits string) {
	image := r.made(bits)
	layers, err := image.Layers()
	r.must(err)
	config, err := partial.ConfigLayer(image)
	r.must(err)
	for _, blob := range append(layers, config) {
		digest, err := blob.Digest()
		r.must(err)
		content, err := blob.Compressed()
		r.must(err)
		raw, err := io.ReadAll(content)
		r.must(errors.Join(err, content.Close()))
		r.put(http.MethodPost, "/v2/daemon/blobs/uploads/?digest="+digest.String(), "application/octet-stream", raw)
	}
	manifest, err := image.RawManifest()
	r.must(err)
	r.put(http.MethodPut, "/v2/daemon/manifests/"+tag, string(types.OCIManifestSchema1), manifest)
	digest, err := image.Digest()
	r.must(err)
	r.bits[digest.String()] = bits
}

func (r *movingRegistry) put(method, path, kind string, raw []byte) {
	q, err := http.NewRequest(method, "http://"+r.host+path, bytes.NewReader(raw))
	r.must(err)
	q.Header.Set("Content-Type", kind)
	w := &answered{header: http.Header{}}
	r.inner.ServeHTTP(w, q)
	if w.code != http.StatusCreated {
		r.must(fmt.Errorf("%s %s: %d %s", method, path, w.code, w.body.String()))
	}
}

// must ends the program where the registry cannot be made: a handler may not end a test.
func (r *movingRegistry) must(err error) {
	if err != nil {
		panic(err)
	}
}

// answered is what the registry said to a push.
type answered struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answered) Header() http.Header         { return a.header }
func (a *answered) Write(p []byte) (int, error) { return a.body.Write(p) }
func (a *answered) WriteHeader(code int)        { a.code = code }

// made is the daemon's image with bits.
func (r *movingRegistry) made(bits string) v1.Image {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, r.binary, r.layer("bits", 0o644, []byte(bits)))
	r.must(err)
	file, err := image.ConfigFile()
	r.must(err)
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, v1.Config{Entrypoint: []string{"/daemon"}}
	image, err = mutate.ConfigFile(image, file)
	r.must(err)
	return image
}

func (r *movingRegistry) layer(name string, mode int64, content []byte) v1.Layer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	r.must(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}))
	_, err := w.Write(content)
	r.must(errors.Join(err, w.Close()))
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	r.must(err)
	return layer
}

// program builds the daemon.
func (r *movingRegistry) program() v1.Layer {
	r.t.Helper()
	binary := filepath.Join(r.t.TempDir(), "daemon")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./daemon")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		r.t.Fatalf("build the daemon: %v: %s", err, out)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.layer("daemon", 0o755, content)
}
