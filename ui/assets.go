package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed assets/*.css assets/*.js assets/*.svg
var assetFiles embed.FS

// asset is a file that pages load. Its name has a hash of what is in it, so a browser keeps it for ever.
type asset struct {
	body, zipped []byte
	kind         string
}

var (
	assets     = map[string]asset{}  // by the names that have hashes
	assetNames = map[string]string{} // these, by the names in assets/
)

func init() {
	files, err := fs.ReadDir(assetFiles, "assets")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		body, err := assetFiles.ReadFile("assets/" + f.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(body)
		ext := path.Ext(f.Name())
		name := strings.TrimSuffix(f.Name(), ext) + "-" + hex.EncodeToString(sum[:5]) + ext
		assets[name] = asset{body: body, zipped: zip(body), kind: mime.TypeByExtension(ext)}
		assetNames[f.Name()] = name
	}
}

func zip(body []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		panic(err)
	}
	if _, err := w.Write(body); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// serve answers without asking Authorize: what is in an asset is in the source of this package.
func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	body := a.body
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = a.zipped
	}
	_, _ = w.Write(body)
}
