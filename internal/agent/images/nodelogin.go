package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/distribution/reference"
)

// nodeLogins returns the credentials for the image in the node's own docker configuration; none if there is no such
// file.
func nodeLogins(path string, image reference.Named) ([]login, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's credentials: %w", err)
	}
	defer func() { _ = f.Close() }()
	var config struct {
		Auths       map[string]entry  `json:"auths"`
		CredsStore  string            `json:"credsStore"`
		CredHelpers map[string]string `json:"credHelpers"`
	}
	if err := json.NewDecoder(f).Decode(&config); err != nil {
		return nil, fmt.Errorf("read the node's credentials: %s is not a docker configuration: %w", path, err)
	}
	if config.CredsStore != "" || len(config.CredHelpers) > 0 {
		return nil, fmt.Errorf(
			"read the node's credentials: %s names credential helpers, which are not run; write the credentials under auths",
			path,
		)
	}
	found := fitting(config.Auths, image, nil)
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the node's credentials: %w", err)
	}
	if len(found) > 0 && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf(
			"%s has credentials for the image and can be read by others than its owner: chmod 600 %s", path, path,
		)
	}
	return found, nil
}
