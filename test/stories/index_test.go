package stories

import (
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/rogpeppe/go-internal/testscript"
)

// pushIndex VARIABLE NAME v1|v2 puts an index of two platforms, with the demo image for each, into a registry without a
// password, under any name. The variable gets the index's digest. Nodes find the image for their own platform; what is
// for the other one ends there too, as its program is this machine's.
func pushIndex(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: pushindex VARIABLE REGISTRY/REPOSITORY:TAG v1|v2")
	}
	digest, err := login{}.pushIndex(args[1], args[2])
	ts.Check(err)
	ts.Setenv(args[0], digest.String())
}

func (l login) pushIndex(name, version string) (v1.Hash, error) {
	image, err := demoImage(version)
	if err != nil {
		return v1.Hash{}, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range []string{"amd64", "arm64"} {
		one, err := forPlatform(image, architecture)
		if err != nil {
			return v1.Hash{}, err
		}
		// Its manifest gets a tag beside; the index names it by its digest.
		err = l.pushImage(name+"-"+architecture, one)
		if err != nil {
			return v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	manifest, err := index.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	err = l.pushManifest(name, types.OCIImageIndex, manifest)
	if err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// forPlatform is an image that says that it is for an architecture.
func forPlatform(image v1.Image, architecture string) (v1.Image, error) {
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture = architecture
	return mutate.ConfigFile(image, file)
}
