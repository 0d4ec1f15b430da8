package stories

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everynode/everynode/internal/images"
)

// startRegistry is the command `registry VARIABLE [USER PASSWORD]`: a registry
// of the script's own, which has demo:v1 and demo:v2 and ends with the script. The
// variable gets its HOST:PORT. With a user it demands that user's password. It
// never answers for the repository named stuck.
func startRegistry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || (len(args) != 1 && len(args) != 3) {
		ts.Fatalf("usage: registry VARIABLE [USER PASSWORD]")
	}
	gateway, err := gatewayOf(ts.Getenv("DATA"))
	ts.Check(err)
	handler, auth := stuck(registry.New(registry.Logger(log.New(io.Discard, "", 0)))), login{}
	if len(args) == 3 {
		auth = login{user: args[1], password: args[2]}
		handler = auth.demand(handler)
	}
	served := &servedRegistry{handler: handler}
	ts.Check(served.listen(net.JoinHostPort(gateway, "0")))
	ts.Defer(func() {
		if err := served.close(); err != nil {
			ts.Logf("end the registry: %v", err)
		}
	})
	host := served.host
	ts.Value(registriesKey{}).(registries)[host] = served
	ts.Check(writeHosts(ts.Getenv("DATA"), host))
	for _, version := range []string{"v1", "v2"} {
		ts.Check(auth.pushDemo(host+"/demo:"+version, version))
	}
	ts.Setenv(args[0], host)
}

// registriesKey is where a script keeps its registries, by HOST:PORT.
type registriesKey struct{}

type registries map[string]*servedRegistry

// servedRegistry is a registry that can go away, and come back with what it had.
type servedRegistry struct {
	handler http.Handler
	host    string
	server  *http.Server // nil while it is away
	ended   chan error
}

func (r *servedRegistry) listen(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	r.host, r.ended = listener.Addr().String(), make(chan error, 1)
	r.server = &http.Server{Handler: r.handler, ReadHeaderTimeout: time.Minute}
	go func() { r.ended <- r.server.Serve(listener) }()
	return nil
}

func (r *servedRegistry) close() error {
	if r.server == nil {
		return nil
	}
	err := r.server.Close()
	if ended := <-r.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	r.server = nil
	return err
}

// registryserver stop|start HOST:PORT has a registry of the script refuse connections, and come back.
func registryServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || args[0] != "stop" && args[0] != "start" {
		ts.Fatalf("usage: registryserver stop|start HOST:PORT")
	}
	r := ts.Value(registriesKey{}).(registries)[args[1]]
	switch {
	case r == nil || (r.server == nil) != (args[0] == "start"):
		ts.Fatalf("registryserver %s: there is no such registry to %s", args[1], args[0])
	case args[0] == "stop":
		ts.Check(r.close())
	default:
		ts.Check(r.listen(r.host))
	}
}

// push NAME v1|v2|incluster|plugin|packaged|garbage puts the demo image, the image of the program
// in that folder, or what is no image at all, into a registry without a password,
// under any name.
func push(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: push REGISTRY/REPOSITORY:TAG v1|v2|incluster|plugin|packaged|garbage")
	}
	switch args[1] {
	case "garbage":
		ts.Check(login{}.pushManifest(args[0], types.OCIManifestSchema1, []byte("this is no manifest")))
	case "incluster", "plugin", "packaged":
		image, err := programImage(args[1], ts.Getenv("WORK"))
		ts.Check(err)
		ts.Check(login{}.pushImage(args[0], image))
	default:
		ts.Check(login{}.pushDemo(args[0], args[1]))
	}
}

// login is who pushes and pulls; the zero value is nobody.
type login struct{ user, password string }

func (l login) pushDemo(image, version string) error {
	content, err := demoImage(version)
	if err != nil {
		return err
	}
	return l.pushImage(image, content)
}

func (l login) pushImage(image string, content v1.Image) error {
	layers, err := content.Layers()
	if err != nil {
		return err
	}
	config, err := partial.ConfigLayer(content)
	if err != nil {
		return err
	}
	for _, blob := range append(layers, config) {
		if err := l.pushBlob(image, blob); err != nil {
			return err
		}
	}
	manifest, err := content.RawManifest()
	if err != nil {
		return err
	}
	return l.pushManifest(image, types.OCIManifestSchema1, manifest)
}

func (l login) pushBlob(image string, blob v1.Layer) error {
	digest, err := blob.Digest()
	if err != nil {
		return err
	}
	content, err := blob.Compressed()
	if err != nil {
		return err
	}
	defer content.Close()
	host, repository, _ := parts(image)
	return l.send(http.MethodPost, "http://"+host+"/v2/"+repository+"/blobs/uploads/?digest="+digest.String(), "application/octet-stream", content)
}

func (l login) pushManifest(image string, mediaType types.MediaType, manifest []byte) error {
	host, repository, tag := parts(image)
	return l.send(http.MethodPut, "http://"+host+"/v2/"+repository+"/manifests/"+tag, string(mediaType), bytes.NewReader(manifest))
}

func (l login) send(method, url, contentType string, body io.Reader) error {
	request, err := http.NewRequest(method, url, body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", contentType)
	if l.user != "" {
		request.SetBasicAuth(l.user, l.password)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		return fmt.Errorf("push to %s: %s", url, response.Status)
	}
	return nil
}

// parts takes HOST:PORT/REPOSITORY:TAG apart.
func parts(image string) (host, repository, tag string) {
	host, rest, _ := strings.Cut(image, "/")
	repository, tag, _ = strings.Cut(rest, ":")
	return host, repository, tag
}

// stuck leaves whoever asks for the repository stuck waiting.
func stuck(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v2/stuck/") {
			<-r.Context().Done()
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// demand lets only this user through.
func (l login) demand(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != l.user || password != l.password {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// gatewayOf is the address of this machine that the cluster's nodes reach.
func gatewayOf(dataDir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dataDir, "local.json"))
	if err != nil {
		return "", err
	}
	var state struct {
		Plan struct {
			Gateway string `json:"gateway"`
		} `json:"plan"`
	}
	if err := json.Unmarshal(raw, &state); err != nil {
		return "", fmt.Errorf("read the cluster's addresses: %w", err)
	}
	if state.Plan.Gateway == "" {
		return "", errors.New("the cluster has no gateway; a registry is for real nodes only")
	}
	return state.Plan.Gateway, nil
}

// writeHosts tells the nodes that the registry speaks plain HTTP, as a user would.
func writeHosts(dataDir, host string) error {
	dir := filepath.Join(dataDir, "registries", host)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("server = %q\n\n[host]\n", "http://"+host)
	return os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644)
}

// demoImage is the demo image with a file /etc/origin and compressed layers, so
// that the nodes, which have the demo image, must get all of it.
func demoImage(version string) (v1.Image, error) {
	archive, err := images.Load()
	if err != nil {
		return nil, err
	}
	source := archive.Image("everynode.io/demo:" + version)
	if source == nil {
		return nil, fmt.Errorf("no demo image of version %s", version)
	}
	file, err := source.ConfigFile()
	if err != nil {
		return nil, err
	}
	origin, err := originLayer()
	if err != nil {
		return nil, err
	}
	layers := []v1.Layer{origin}
	have, err := source.Layers()
	if err != nil {
		return nil, err
	}
	for _, l := range have {
		layer, err := tarball.LayerFromOpener(l.Uncompressed, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, fmt.Errorf("compress a layer of demo:%s: %w", version, err)
		}
		layers = append(layers, layer)
	}
	return imageOf(file.OS, file.Architecture, file.Config, layers...)
}

func imageOf(system, architecture string, config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		return nil, err
	}
	made, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	made = made.DeepCopy()
	made.OS, made.Architecture, made.Config = system, architecture, config
	return mutate.ConfigFile(image, made)
}

// programImage is the image of a program in a folder here, which it builds in dir.
func programImage(folder, dir string) (v1.Image, error) {
	binary := filepath.Join(dir, folder)
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./"+folder)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", folder, err, out)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	layer, err := layerOf(&tar.Header{Typeflag: tar.TypeReg, Name: folder, Mode: 0o755}, content)
	if err != nil {
		return nil, err
	}
	return imageOf("linux", runtime.GOARCH, v1.Config{Entrypoint: []string{"/" + folder}}, layer)
}

// layerOf is a layer with one file.
func layerOf(file *tar.Header, content []byte, folders ...*tar.Header) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	file.Size = int64(len(content))
	for _, h := range append(folders, file) {
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed))
}

func originLayer() (v1.Layer, error) {
	return layerOf(&tar.Header{Typeflag: tar.TypeReg, Name: "etc/origin", Mode: 0o644}, []byte("pulled from a registry\n"),
		&tar.Header{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755})
}
