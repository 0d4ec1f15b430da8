package stories

import (
	"archive/tar"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everynode/everynode/internal/testenv/needs"
)

var (
	published = flag.Bool("published", false, "run programs that others make, which are got from Debian and as Go modules")
	programs  = flag.String("programs", "", "the folder with what hack/published-programs.sh has built")
)

// TestPublished runs the programs of others as they are, with the arguments that their makers publish: what they find on a node must be
// what they expect of a kubelet's.
func TestPublished(t *testing.T) {
	if !*published {
		t.Skip("needs packages of others; run: make published")
	}
	needs.Root(t, "real nodes need root")
	files, err := filepath.Glob("testdata/published/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts are found: %v", err)
	}
	runStories(t, "containerd", files)
}

// assemble IMAGE PART... makes an image and puts it into a registry without a password. A part is a Debian package, which comes with the
// libraries that it needs; PROGRAM=/PATH, a program that hack/published-programs.sh has built; or /LINK->/TARGET. The first such program is
// the entrypoint.
func assemble(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: assemble REGISTRY/REPOSITORY:TAG PACKAGE|PROGRAM=/PATH|/LINK->/TARGET...")
	}
	config := v1.Config{Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}
	var named []string
	var above []v1.Layer
	for _, part := range args[1:] {
		link, target, isLink := strings.Cut(part, "->")
		program, path, isProgram := strings.Cut(part, "=")
		switch {
		case isLink:
			layer, err := layerOf(&tar.Header{Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(link, "/"), Linkname: target}, nil)
			ts.Check(err)
			above = append(above, layer)
		case isProgram:
			content, err := os.ReadFile(filepath.Join(*programs, program))
			if err != nil {
				ts.Fatalf("%s was not built: %v; run make published", program, err)
			}
			layer, err := layerOf(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(path, "/"), Mode: 0o755}, content)
			ts.Check(err)
			above = append(above, layer)
			if config.Entrypoint == nil {
				config.Entrypoint = []string{path}
			}
		default:
			named = append(named, part)
		}
	}
	layers, err := packageLayers(filepath.Join(ts.Getenv("WORK"), "debian", strings.Join(named, "+")), named)
	ts.Check(err)
	image, err := imageOf("linux", runtime.GOARCH, config, append(layers, above...)...)
	ts.Check(err)
	ts.Check(login{}.pushImage(args[0], image))
}

// ownfolder NODE PATH gives a node an empty folder of its own, until its end, in place of one that it shares with the machine.
func ownFolder(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ownfolder NODE PATH")
	}
	ts.Check(ts.Exec("nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", nodeProcess(ts, args[0], "init")), "mount", "-t", "tmpfs", "tmpfs", args[1]))
}

// packageLayers are layers with packages, and with the libraries that they need, which are downloaded into a folder.
func packageLayers(dir string, named []string) ([]v1.Layer, error) {
	if len(named) == 0 {
		return nil, nil
	}
	packages, err := withLibraries(named)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	get := exec.Command("apt-get", append([]string{"-o", "APT::Sandbox::User=root", "download"}, packages...)...)
	get.Dir = dir
	if out, err := get.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("download %v: %w: %s", packages, err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, err
	}
	// What comes first is below, and brings the links of folders, where the system has such.
	slices.SortFunc(files, func(a, b string) int {
		return strings.Compare(strings.Replace(filepath.Base(a), "base-files", "", 1), strings.Replace(filepath.Base(b), "base-files", "", 1))
	})
	var layers []v1.Layer
	for _, file := range files {
		layer, err := packageLayer(file)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	return layers, nil
}

// withLibraries names packages, and all libraries that they need. Scripts that packages run when they are installed do nothing here,
// and so what only these need is left out.
func withLibraries(named []string) ([]string, error) {
	found := slices.Compact(append([]string{"base-files"}, named...))
	for i := 1; i < len(found); i++ {
		out, err := exec.Command("apt-cache", "depends", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", found[i]).Output()
		if err != nil {
			return nil, fmt.Errorf("ask what %s needs: %w", found[i], err)
		}
		for line := range strings.Lines(string(out)) {
			_, needed, ok := strings.Cut(strings.TrimSpace(line), "Depends: ")
			if ok && (strings.HasPrefix(needed, "lib") || strings.HasPrefix(needed, "zlib")) && !slices.Contains(found, needed) {
				found = append(found, needed)
			}
		}
	}
	return found, nil
}

// packageLayer is a layer with the files of a package.
func packageLayer(file string) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		cmd := exec.Command("dpkg-deb", "--fsys-tarfile", file)
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return unpacking{out, cmd}, nil
	}, tarball.WithMediaType(types.OCILayer))
}

// unpacking is a package that is unpacked as it is read.
type unpacking struct {
	io.ReadCloser
	cmd *exec.Cmd
}

// Close waits for the end.
func (u unpacking) Close() error {
	_ = u.ReadCloser.Close()
	return u.cmd.Wait()
}
