package distributary.tests;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * An object store over local files, for tests: `objects:/folder/file`.
 *
 * <p>A file appears, or takes the place of another, when its stream is closed, and at once. A rename
 * copies file by file and then removes, as object stores do it, and is refused for a folder that is
 * not Spark's own work (a name with an underscore first, below it). A test can have the store fail at the
 * n-th change, and at all after it, as if the process had been killed there. Nobody may look below a
 * folder called `forbidden`, or write below one called `read-only`.
 */
public class ObjectStore extends RawLocalFileSystem {
    public static volatile long changesLeft = Long.MAX_VALUE;
    public static volatile long changes = 0;

    private static void check(Path path) throws IOException {
        if (path.toString().indexOf("/forbidden/") >= 0) {
            throw new java.nio.file.AccessDeniedException(path.toString(), null, "403 Forbidden");
        }
    }

    private static synchronized void change(String what, Path path) throws IOException {
        check(path);
        if (path.toString().indexOf("/read-only/") >= 0) {
            throw new java.nio.file.AccessDeniedException(path.toString(), null, "403 Forbidden");
        }
        changes++;
        if (changesLeft <= 0) {
            throw new IOException("killed before " + what + " " + path);
        }
        changesLeft--;
    }

    public String getScheme() {
        return "objects";
    }

    public URI getUri() {
        return URI.create("objects:///");
    }

    // The statuses of local files look for their permissions at `file:` alone.
    public FileStatus getFileStatus(Path path) throws IOException {
        check(path);
        return plain(super.getFileStatus(path));
    }

    public FileStatus[] listStatus(Path path) throws IOException {
        FileStatus[] found = super.listStatus(path);
        for (int i = 0; i < found.length; i++) {
            found[i] = plain(found[i]);
        }
        return found;
    }

    private FileStatus plain(FileStatus of) {
        return new FileStatus(
                of.getLen(), of.isDirectory(), 1, of.getBlockSize(), of.getModificationTime(),
                makeQualified(of.getPath()));
    }

    public boolean rename(Path from, Path to) throws IOException {
        FileStatus status = getFileStatus(from);
        if (status.isDirectory() && from.toString().indexOf("/_temporary/") < 0) {
            throw new IOException("this store renames no folders: " + from);
        }
        change("rename", from);
        return FileUtil.copy(this, from, this, to, true, true, getConf());
    }

    public boolean delete(Path path, boolean recursive) throws IOException {
        change("delete", path);
        return super.delete(path, recursive);
    }

    public FSDataOutputStream create(
            Path path, boolean overwrite, int buffer, short copies, long block, Progressable progress)
            throws IOException {
        return put(path, overwrite);
    }

    public FSDataOutputStream create(
            Path path,
            FsPermission permission,
            boolean overwrite,
            int buffer,
            short copies,
            long block,
            Progressable progress)
            throws IOException {
        return put(path, overwrite);
    }

    private FSDataOutputStream put(Path path, boolean overwrite) throws IOException {
        change("create", path);
        File file = pathToFile(path);
        if (file.exists() && !overwrite) {
            throw new IOException("exists: " + path);
        }
        file.getParentFile().mkdirs();
        return new FSDataOutputStream(new Upload(file), null);
    }

    /** The bytes of a file that is not there until it is complete. */
    private static class Upload extends OutputStream {
        private final File file;
        private final File made;
        private final FileOutputStream out;
        private boolean closed = false;

        Upload(File file) throws IOException {
            this.file = file;
            this.made = File.createTempFile("objects", ".part");
            this.out = new FileOutputStream(made);
        }

        public void write(int value) throws IOException {
            out.write(value);
        }

        public void write(byte[] bytes, int from, int length) throws IOException {
            out.write(bytes, from, length);
        }

        public void close() throws IOException {
            if (closed) {
                return;
            }
            closed = true;
            out.close();
            java.nio.file.Files.move(
                    made.toPath(), file.toPath(), new java.nio.file.CopyOption[] {
                        java.nio.file.StandardCopyOption.REPLACE_EXISTING});
        }
    }
}
